"""Misfits: the place and the error of a wrong value, from the messages of msgspec.

msgspec ends its messages with a path, as in ``Expected `int`, got `str` - at `$.zip` ``. A value that Penstock converts
inside of another one, such as a pydantic model, has a path of its own in its message, which is joined with the outer path.
"""

import re
from typing import Any, Final, NamedTuple

from penstock.base.accepted_values import accepted_at, fields_at

_OUTER: Final = re.compile(r"(?P<key>`key` in )?`\$(?P<path>[^`]*)`")
_INNER: Final = re.compile(r"(?P<mistake>.*) in `\$(?P<path>[^`]*)`", re.DOTALL)
UNKNOWN_FIELD: Final = "Object contains unknown field"
_WRONG_MEMBER: Final = "Invalid enum value"
_ROW_EXPECTED: Final = "Expected `array`"
_WAY_OF_KEYS: Final = r'write the key as JSON in a text, as "[\"a\",1]"'
_PLACE: Final = re.compile(r"\[(\d+)\]")


class Misfit(NamedTuple):
    """A wrong value.

    Attributes:
        path: Its place, such as `.addresses[0].zip`; empty for the whole value.
        mistake: The mistake.
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
        """Return the misfit with what is accepted, for a whole value of this type: the members of an Enum or a Literal.

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
    return Misfit(path, mistake, is_key)


def place_of(complaint: str) -> tuple[int | None, Misfit]:
    """Return the index of the wrong value in a row, and the misfit inside of that value.

    Args:
        complaint: A message of msgspec.

    Returns:
        No index if the row itself is wrong; the misfit is then that of the row.
    """
    misfit = misfit_of(complaint)
    place = _PLACE.match(misfit.path)
    if place is None:
        return None, misfit
    return int(place[1]), misfit._replace(path=misfit.path[place.end() :])
