"""Names that are similar to a name that does not exist, for messages."""

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from typing import Final

_LENGTH_MAX: Final = 200
"""A longer name is not a slip of the fingers, and the comparison takes time."""

_AS_NEAR: Final = 0.1
"""A name is offered next to the most similar one if its similarity (0 to 1) is smaller by at most this."""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the end of a message about a name that does not exist: the most similar names; empty if none is similar."""
    if len(name) > _LENGTH_MAX:
        return ""
    near = get_close_matches(name, list(names), n=3)
    least = max((_similarity(name, each) for each in near), default=1) - _AS_NEAR
    near = [each for each in near if _similarity(name, each) >= least]
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _similarity(name: str, other: str) -> float:
    return SequenceMatcher(None, name, other).ratio()
