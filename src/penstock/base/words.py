"""Words: values that people write, in a command line or in a path."""

import re
from typing import Any, Final

import msgspec

from penstock.base.json_floats import decode_json
from penstock.base.schema import decode_reference
from penstock.errors import Unencodable

UNREADABLE: Final = (ValueError, TypeError, RecursionError, Unencodable)
"""The errors of decoding values from outside; msgspec's errors are `ValueError`s."""

_JSON: Final = ("{", "[")
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(:\d\d(?:\.\d+)?)? ?(Z|UTC|[+-]\d\d(?::?\d\d)?)?"
)
_CLOCK: Final = re.compile(r"\d\d:\d\d")
_ZONE: Final = re.compile(r"([+-]\d\d):?(\d\d)?")


def value_of_word(word: str, annotation: Any) -> Any:
    """Return the value that a word means: JSON, or else bare text, such as a string, the key of a reference or a date.

    To decode the value may run code of the application, as `base.class_code` says.

    Raises:
        ValueError: The word fits neither way; so do the other errors of `UNREADABLE`. For an object or a list it is the
            error of the JSON, which says more about the parts.
    """
    try:
        return decode_json(word, annotation)
    except UNREADABLE as as_json:
        try:
            return _value_of_text(word, annotation)
        except UNREADABLE as as_text:
            raise (as_json if word.lstrip().startswith(_JSON) else as_text) from None


def _value_of_text(word: str, annotation: Any) -> Any:
    """Return the value that bare text means; a time may also be written as in tables, or without seconds."""
    try:
        return msgspec.convert(word, annotation, strict=False, dec_hook=decode_reference)
    except UNREADABLE:
        if _CLOCK.fullmatch(word):
            return msgspec.convert(
                f"{word}:00", annotation, strict=False, dec_hook=decode_reference
            )
        if (time := _TIME.fullmatch(word)) is None:
            raise
        day, minute, second, zone = time.groups(default="")
        zone = (
            "Z" if zone == "UTC" else _ZONE.sub(lambda part: f"{part[1]}:{part[2] or '00'}", zone)
        )
        text = f"{day}T{minute}{second or ':00'}{zone}"
        return msgspec.convert(text, annotation, strict=False, dec_hook=decode_reference)
