"""Stored defaults: the value that stored entities get for a new attribute, or for a new field of a record."""

from collections.abc import Callable
from typing import Any

from penstock.base.lowering import lower_of
from penstock.base.schema import ENCODER


def stored_default(make: Callable[[], Any], annotation: Any) -> bytes:
    """Return the default of an attribute or field, encoded as in a row.

    Args:
        make: Returns the default.
        annotation: The type of the attribute or field.

    Raises:
        ValueError: A factory returns different values; entities that are only read would change.
        Exception: A factory fails, or its value cannot be stored.
    """
    lower = lower_of(annotation) or (lambda value: value)
    encoded, again = (ENCODER.encode(lower(make())) for _ in range(2))
    if encoded != again:
        raise ValueError("its factory returns a different value each time")
    return encoded
