"""Misfits: the place and the error of a wrong value, from the messages of msgspec.

msgspec ends its messages with a path, as in ``Expected `int`, got `str` - at `$.zip` ``. A value that Penstock converts
inside of another one, such as a pydantic model, has a path of its own in its message, which is joined with the outer path.
"""

import re
import typing
from collections.abc import Iterator
from enum import Enum, Flag
from typing import Any, Final, NamedTuple

from penstock.base.annotations import UNIONS
from penstock.base.record import fields_of, kind_of, members_of, simplified

_OUTER: Final = re.compile(r"(?P<key>`key` in )?`\$(?P<path>[^`]*)`")
_INNER: Final = re.compile(r"(?P<mistake>.*) in `\$(?P<path>[^`]*)`", re.DOTALL)
UNKNOWN_FIELD: Final = "Object contains unknown field"
_WRONG_MEMBER: Final = "Invalid enum value"
_ROW_EXPECTED: Final = "Expected `array`"
_WAY_OF_KEYS: Final = r'write the key as JSON in a text, as "[\"a\",1]"'
_PLACE: Final = re.compile(r"\[(\d+)\]")
_PLAINER: Final = {  # a datetime travels as an extension of MessagePack, and a date and a duration as text
    "Expected `date`, got `ext`": "Expected `date`, got `datetime`; value.date() is its day",
    "Invalid RFC3339 encoded date": "Expected `date`, such as 2026-01-31",
    "Invalid RFC3339 encoded datetime": "Expected `datetime`, such as 2026-01-31T12:00:00Z",
    "Invalid RFC3339 encoded time": "Expected `time`, such as 12:30:00",
    "Invalid ISO8601 duration": "Expected `timedelta`, such as PT1H30M",
}
"""Messages of msgspec that name its own encoding, in the words of Python."""


class Misfit(NamedTuple):
    """A wrong value.

    Attributes:
        path: Its place, such as `.addresses[0].zip`; empty for the whole value.
        is_key: Whether it is a key of the dictionary at the path.
    """

    path: str
    mistake: str
    is_key: bool = False

    def __str__(self) -> str:
        return self.at("") if self._place else self.mistake

    def at(self, name: str) -> str:
        """Return a message for people: the name of the whole value, the path, and the mistake."""
        return f"{name}{self._place}: {self.mistake}"

    def explained(self, annotation: Any) -> "Misfit":
        """Return the misfit with the accepted values, for a whole value of this type: the members of an Enum or a Literal.

        The key of a dictionary that is a tuple is accepted in one form of text.
        """
        if self.is_key and self.mistake.startswith(_ROW_EXPECTED):
            return self._replace(mistake=f"{self.mistake}; {_WAY_OF_KEYS}")
        if self.mistake.startswith(UNKNOWN_FIELD):
            names = fields_at(annotation, self.path)
            return (
                self._replace(mistake=f"{self.mistake}; the fields are {names}") if names else self
            )
        if not self.mistake.startswith(_WRONG_MEMBER):
            return self
        accepted = accepted_at(annotation, self.path, is_key=self.is_key)
        return (
            self._replace(mistake=f"{self.mistake}; accepted are {accepted}") if accepted else self
        )

    def inner_text(self) -> str:
        """Return the message for a value inside of another one, from which `misfit_of` joins both paths."""
        return f"{self.mistake} in `${self._place}`" if self._place else self.mistake

    @property
    def _place(self) -> str:
        return f"{self.path} (a key)" if self.is_key else self.path


def misfit_of(complaint: str) -> Misfit:
    """Return the wrong value that a message of msgspec describes."""
    mistake, _, end = complaint.rpartition(" - at ")
    outer = _OUTER.fullmatch(end)
    if outer is None:
        mistake, path, is_key = complaint, "", False
    else:
        path, is_key = outer["path"], outer["key"] is not None
    inner = _INNER.fullmatch(mistake)
    if inner is not None:
        mistake, path = inner["mistake"], path + inner["path"]
    return Misfit(path, _PLAINER.get(mistake, mistake), is_key)


def place_of(complaint: str) -> tuple[int | None, Misfit]:
    """Return the index of the wrong value in a row, and the misfit inside of that value.

    Returns:
        No index if the row itself is wrong; the misfit is then that of the row.
    """
    misfit = misfit_of(complaint)
    place = _PLACE.match(misfit.path)
    if place is None:
        return None, misfit
    return int(place[1]), misfit._replace(path=misfit.path[place.end() :])


_STEP: Final = re.compile(r"\.(?P<name>\w+)|\[(?P<index>[^]]*)\]")
_NAMED_MAX: Final = 10


def accepted_at(annotation: Any, path: str, *, is_key: bool) -> str:
    """Return the values that an Enum or a Literal accepts at a place.

    Args:
        annotation: The type of the whole value.
        path: The place in the value, such as `.parts[0].colour`.
        is_key: Whether the place is a key of the dictionary at the path.

    Returns:
        The first ten values, such as `'red', 'blue'`; empty without an Enum or a Literal at this place.
    """
    types = _types_at(annotation, path)
    if is_key:
        types = [inner for outer in types for inner in _alternatives(_first_part(outer))]
    accepted = list(dict.fromkeys(repr(value) for each in types for value in _values(each)))
    named = ", ".join(accepted[:_NAMED_MAX] + ["…"] * (len(accepted) > _NAMED_MAX))
    return f"{named}, and their sums" if any(map(_is_flag, types)) else named


def fields_at(annotation: Any, path: str) -> str:
    """Return the names of the fields of the record at a place, such as `sku, n`; empty without a record."""
    names: dict[str, None] = {}
    for each in _types_at(annotation, path):
        cls = typing.get_origin(each) or each
        if isinstance(cls, type) and kind_of(cls) is not None:
            names |= dict.fromkeys(member.wire for member in members_of(each))
    return ", ".join(names)


def _types_at(annotation: Any, path: str) -> list[Any]:
    types = _alternatives(annotation)
    for step in _STEP.finditer(path):
        types = [inner for outer in types for inner in _inside(outer, step)]
    return types


def _alternatives(annotation: Any) -> list[Any]:
    """Return the members of a union, or the type itself."""
    meant = simplified(annotation)
    if typing.get_origin(meant) not in UNIONS:
        return [meant]
    return [each for part in typing.get_args(meant) for each in _alternatives(part)]


def _inside(annotation: Any, step: re.Match[str]) -> Iterator[Any]:
    """Yield the types of the values at one step of a path."""
    index = step["index"]
    cls = typing.get_origin(annotation) or annotation
    if isinstance(cls, type) and kind_of(cls) is not None:
        for number, field in enumerate(fields_of(annotation)):
            if step["name"] == field.member.wire or index == str(number):
                yield from _alternatives(field.annotation)
        return
    parts = typing.get_args(annotation)
    if index is None or not parts or not isinstance(cls, type):  # a Literal has parts, too
        return
    if cls is tuple and index.isdecimal() and Ellipsis not in parts:
        yield from _alternatives(parts[min(int(index), len(parts) - 1)])
    else:
        yield from _alternatives(parts[1] if issubclass(cls, dict) else parts[0])


def _first_part(annotation: Any) -> Any:
    """Return the type of the keys of a dictionary; `Any` for another type."""
    parts = typing.get_args(annotation)
    return parts[0] if parts else Any


def _values(annotation: Any) -> Iterator[Any]:
    """Yield the accepted values of an Enum or a Literal; those of a Flag can be added."""
    if typing.get_origin(annotation) is typing.Literal:
        yield from typing.get_args(annotation)
        return
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        yield from (member._value_ for member in annotation)


def _is_flag(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Flag)
