"""Words: values that people write, in a command line or in a path."""

import re
from typing import Any, Final

import msgspec

from penstock.base.given_type import GivenType
from penstock.base.schema import decode_reference
from penstock.errors import Unencodable

UNREADABLE: Final = (ValueError, TypeError, RecursionError, Unencodable)
"""The errors of decoding values from outside; msgspec's errors are `ValueError`s."""

JSON_BEGINS: Final = ("{", "[")
"""The first characters of JSON whose errors say more about the parts than those of bare text."""
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(:\d\d(?:\.\d+)?)? ?(Z|UTC|[+-]\d\d(?::?\d\d)?)?"
)
_CLOCK: Final = re.compile(r"\d\d:\d\d")
_ZONE: Final = re.compile(r"([+-]\d\d):?(\d\d)?")


def value_of_word(word: str, given: GivenType) -> Any:
    """Return the value that a word means: JSON, or else bare text, such as a string, the key of a reference or a date.

    To decode the value may run code of the application, as `base.class_code` says.
    """
    try:
        return given.of_json(word)
    except UNREADABLE as as_json:
        try:
            return _value_of_text(word, given.annotation)
        except UNREADABLE as as_text:
            raise (as_json if word.lstrip().startswith(JSON_BEGINS) else as_text) from None


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
