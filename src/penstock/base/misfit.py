"""Misfits: where a wrong value is, and what is wrong with it, from the messages of msgspec.

msgspec ends its messages with a path, as in ``Expected `int`, got `str` - at `$.zip` ``. A value that Penstock converts
inside of another one, such as a pydantic model, has a path of its own in its message, which is joined with the outer path.
"""

import re
from typing import Final, NamedTuple

_OUTER: Final = re.compile(r"(?P<key>`key` in )?`\$(?P<path>[^`]*)`")
_INNER: Final = re.compile(r"(?P<mistake>.*) in `\$(?P<path>[^`]*)`", re.DOTALL)
_PLACE: Final = re.compile(r"\[(\d+)\]")


class Misfit(NamedTuple):
    """A wrong value.

    Attributes:
        path: Its place, such as `.addresses[0].zip`; empty for the whole value.
        mistake: What is wrong.
    """

    path: str
    mistake: str

    def __str__(self) -> str:
        return f"{self.path}: {self.mistake}" if self.path else self.mistake

    def inner_text(self) -> str:
        """Return the message for a value inside of another one, from which `misfit_of` joins both paths."""
        return f"{self.mistake} in `${self.path}`" if self.path else self.mistake


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
    return Misfit(f"{path} (a key)" if is_key else path, mistake)


def described_at(name: str, complaint: str) -> str:
    """Return a message for people: the name of the value, the path, and the mistake."""
    path, mistake = misfit_of(complaint)
    return f"{name}{path}: {mistake}"


def place_of(complaint: str) -> tuple[int | None, str]:
    """Return the index of the wrong value in a row, and the mistake, from a message of msgspec."""
    path, mistake = misfit_of(complaint)
    place = _PLACE.match(path)
    if place is None:
        return None, complaint
    return int(place[1]), f"{path[place.end() :]}: {mistake}"
