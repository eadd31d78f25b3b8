"""Stored defaults: the value that stored entities get for a new attribute, or for a new field of a record."""

from collections.abc import Callable
from typing import Any

from penstock.base.lowering import lower_of
from penstock.base.schema import ENCODER, reason_of


def stored_default(make: Callable[[], Any], annotation: Any) -> bytes:
    """Return the default of an attribute or field, encoded as in a row.

    Args:
        make: Returns the default.
        annotation: The type of the attribute or field.

    Raises:
        ValueError: The default cannot be stored; the message says why. A factory that returns different values is refused,
            because entities that are only read would change.
    """
    lower = lower_of(annotation) or (lambda value: value)
    try:
        encoded, again = (ENCODER.encode(lower(make())) for _ in range(2))
    except Exception as error:
        raise ValueError(reason_of(error)) from error
    if encoded != again:
        raise ValueError("its factory returns a different value each time")
    return encoded
