"""Filters of pages and of followed streams: the value that an attribute must have, as the text of a query string has it.

The text is that of JSON, without the quotation marks around a string.
"""

import typing
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec

from penstock.base.annotations import UNIONS
from penstock.base.lowering import alike, lower_of
from penstock.base.ordered_bytes import ordered_by
from penstock.base.schema import (
    ENCODER,
    UNENCODABLE,
    decode_reference,
    is_enum,
    name_of,
    reference_type,
    shown,
)
from penstock.errors import RequestError, Unencodable


class ValueFilter(NamedTuple):
    """The value that an attribute must have.

    Attributes:
        plain: The value as it is stored.
    """

    value: Any
    plain: Any

    def fits(self, plain: Any) -> bool:
        """Say whether a stored value equals the value."""
        # Equal values are stored alike, except 1.0 and 1.00.
        return alike(plain, self.plain) or (
            isinstance(self.value, Decimal)
            and isinstance(plain, str)
            and Decimal(plain) == self.value
        )


def has_filter(annotation: Any) -> bool:
    """Say whether a filter can name the values of a simplified type: they are single."""
    is_literal = typing.get_origin(annotation) is typing.Literal
    return is_literal or not isinstance(ordered_by(annotation, has_order=False), str)


def value_filter(place: str, annotation: Any, text: str) -> ValueFilter:
    """Return the filter for the text of a value. No code of the application runs.

    Args:
        place: The class and the attribute, for errors.
        annotation: The simplified type of the attribute.

    Raises:
        RequestError: The type has no filter, or no value with this text.
    """
    if not has_filter(annotation):
        raise RequestError(f"{place}: {name_of(annotation)} has no filter; ask SQL")
    try:
        value = _value_of(annotation, text)
        lower = lower_of(annotation)
        data = ENCODER.encode(value if lower is None else lower(value))
    except (*UNENCODABLE, msgspec.ValidationError, Unencodable, ValueError) as error:
        raise RequestError(f"{place}: {text!r} is no {name_of(annotation)}: {error}") from error
    return ValueFilter(value, _decode(data))


_decode: Final = msgspec.msgpack.Decoder().decode


def _value_of(annotation: Any, text: str) -> Any:
    members = typing.get_args(annotation) if typing.get_origin(annotation) in UNIONS else ()
    single = next((each for each in members if each is not type(None)), annotation)
    if not is_enum(single):
        return msgspec.convert(text, annotation, strict=False, dec_hook=decode_reference)
    # `convert` would call `_missing_`, which is code of the application.
    by_text = {text_of_value(member): member for member in single.__members__.values()}
    if text in by_text or (members and text == "null"):
        return by_text.get(text)
    raise ValueError(f"its values are {', '.join(by_text)}")


def texts_of_filters(where: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts that stand for the values of filters, by attribute.

    Raises:
        RequestError: No filter can have such a value.
    """
    return {name: text_of_value(value) for name, value in where.items()}


def text_of_value(value: Any) -> str:
    """Return the text that stands for a value; raises as `texts_of_filters`."""
    if isinstance(value, Enum):
        value = value.value
    reference = reference_type(type(value))
    if reference is not None:
        return reference.text_of(value)
    try:
        plain = msgspec.to_builtins(value)
    except (TypeError, ValueError) as error:
        raise RequestError(f"no filter can have {shown(value)}: {error}") from error
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()
