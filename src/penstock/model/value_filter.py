"""Filters of pages and of followed streams: the value that an attribute must have, as the text of a query string has it.

The text is that of JSON. A string needs its quotation marks only where it would else have another meaning: `null` is None for
a type that has None.
"""

import math
import typing
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from enum import Enum, Flag
from typing import Any, Final, NamedTuple

import msgspec

from penstock.base.annotations import UNIONS
from penstock.base.json_keys import float_text
from penstock.base.lowering import alike, lower_of
from penstock.base.ordered_bytes import ordered_by
from penstock.base.schema import (
    ENCODER,
    UNENCODABLE,
    decode_reference,
    is_enum,
    name_of,
    reason_of,
    reference_type,
    shown,
)
from penstock.errors import RequestError, Unencodable

_NONE: Final = "null"
_MARK: Final = '"'
_LITERALS: Final = (*UNIONS, typing.Literal)
_decode: Final = msgspec.msgpack.Decoder().decode


class ValueFilter(NamedTuple):
    """The value that an attribute must have.

    Attributes:
        plain: The value as it is stored.
    """

    value: Any
    plain: Any

    def fits(self, plain: Any) -> bool:
        """Say whether a stored value equals the value."""
        if alike(plain, self.plain):
            return True
        if not (isinstance(self.value, Decimal) and isinstance(plain, str)):
            return False
        try:  # equal values are stored alike, except 1.0 and 1.00
            return Decimal(plain) == self.value
        except InvalidOperation:  # of a time when the field was a text
            return False


def has_filter(annotation: Any) -> bool:
    """Say whether a filter can name the values of a simplified type: they are single, and each has a text of its own."""
    if typing.get_origin(annotation) is typing.Literal:
        texts = [_plain_text(each) for each in typing.get_args(annotation) if each is not None]
        return len(texts) == len({*texts})
    return not isinstance(ordered_by(annotation, has_order=False), str)


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
        raise RequestError(
            f"{place}: {text!r} is no {name_of(annotation)}: {reason_of(error)}"
        ) from error
    return ValueFilter(value, _decode(data))


def _value_of(annotation: Any, text: str) -> Any:
    members = typing.get_args(annotation) if typing.get_origin(annotation) in _LITERALS else ()
    if text == _NONE and not {None, type(None)}.isdisjoint(members):
        return None
    if _is_marked(text):
        with suppress(msgspec.MsgspecError):  # else the marks are a part of the text
            text = msgspec.json.decode(text, type=str)
    others = [each for each in members if each not in (None, type(None))]
    single = others[0] if typing.get_origin(annotation) in UNIONS else annotation
    if typing.get_origin(single) is typing.Literal:
        every = [each for each in typing.get_args(single) if each is not None]
    elif is_enum(single):  # `convert` would call `_missing_`, which is code of the application
        every = [*single.__members__.values()]
    else:
        return msgspec.convert(text, single, strict=False, dec_hook=decode_reference)
    by_text = {_plain_text(each): each for each in every}
    if text in by_text:
        return by_text[text]
    named = ", ".join(by_text)
    if isinstance(single, type) and issubclass(single, Flag):
        return _sum_of(single, text, f"its values are {named}, and their sums")
    raise ValueError(f"its values are {named}")


def _sum_of(flag: type[Flag], text: str, refusal: str) -> Flag:
    """Return the sum of members of a flag whose number a text is.

    Raises:
        ValueError: It is none, as the refusal says.
    """
    try:
        # That of the class could be code of the application.
        member: Flag = Flag._missing_.__func__(flag, int(text))  # type: ignore[attr-defined]
    except ValueError:
        raise ValueError(refusal) from None
    if _plain_text(member) != text:  # bits that a flag leaves out, and numbers from below 0
        raise ValueError(refusal)
    return member


def _is_marked(text: str) -> bool:
    return len(text) > 1 and text[0] == text[-1] == _MARK


def texts_of_filters(where: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts that stand for the values of filters, by attribute.

    Raises:
        RequestError: No filter can have such a value.
    """
    return {name: text_of_value(value) for name, value in where.items()}


def text_of_value(value: Any) -> str:
    """Return the text that stands for a value; raises as `texts_of_filters`."""
    try:
        text = _plain_text(value)
        text.encode()
        needs_marks = value is not None and (text == _NONE or _is_marked(text))
        return msgspec.json.encode(text).decode() if needs_marks else text
    except (TypeError, ValueError) as error:
        raise RequestError(f"no filter can have {shown(value)}: {reason_of(error)}") from error


def _plain_text(value: Any) -> str:
    if isinstance(value, Enum):
        value = value.value
    reference = reference_type(type(value))
    if reference is not None:
        return reference.text_of(value)
    if isinstance(value, float) and not math.isfinite(value):
        return float_text(value)
    plain = msgspec.to_builtins(value)
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()
