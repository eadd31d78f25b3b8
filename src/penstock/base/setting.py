"""`setting`: a field of a class of settings, with its default, its meaning and its bounds.

The check of values, the help of commands and the page of settings all use this declaration.
"""

from dataclasses import Field, field
from typing import Any, Final, NamedTuple, TypeVar

T = TypeVar("T")

_NAME: Final = "meaning"
_HUGE: Final = 1 << 62


class Meaning(NamedTuple):
    """The meaning of a setting.

    Attributes:
        text: Words without a capital letter at the beginning and a full stop at the end.
        at_least: The smallest number.
        at_most: The largest number.
        choices: The texts that are allowed; empty: any.
    """

    text: str = ""
    at_least: int = 0
    at_most: int = _HUGE
    choices: tuple[str, ...] = ()


def setting(
    default: T, text: str, *, at_least: int = 0, at_most: int = _HUGE, choices: tuple[str, ...] = ()
) -> T:
    """Declare a setting: a field of a dataclass; see `Meaning`."""
    return field(default=default, metadata={_NAME: Meaning(text, at_least, at_most, choices)})


def meaning_of(declared: Field[Any]) -> Meaning:
    """Return the meaning of a field; a field that is not declared with `setting` has none."""
    meaning: Meaning = declared.metadata.get(_NAME, Meaning())
    return meaning
