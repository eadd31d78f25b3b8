"""A case of the programming model: members of an application, the atoms that they take, and what they must publish."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

Atoms = Callable[[str], list[list[Any]]]
Append = tuple[str, Sequence[Any]]


class Case(NamedTuple):
    """Members of an application, the atoms that they take, and what they must publish.

    Attributes:
        members: The members.
        rounds: The appends; those of a round are settled before the next round begins.
        check: Asserts the outcome; it gets a function that returns the atoms of a stream.
    """

    members: Sequence[Any]
    rounds: Sequence[Sequence[Append]]
    check: Callable[[Atoms], None]


CASES: Final[dict[str, Case]] = {}


def case(
    *members: Any, rounds: Sequence[Sequence[Append]]
) -> Callable[[Callable[[Atoms], None]], Callable[[Atoms], None]]:
    """Add a case under the name of its check."""

    def add(check: Callable[[Atoms], None]) -> Callable[[Atoms], None]:
        CASES[check.__name__] = Case(members, rounds, check)
        return check

    return add
