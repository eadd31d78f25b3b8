"""The order of calls that append to lists and read them: one that real time allows, or an argument why there is none.

The check is that of Elle for histories of list-append (Kingsbury and Alvaro, VLDB 2020) with strict serialisability. A list shows
the order of its appends, and which of them a call has seen. These orders and that of real time must have no cycle.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise, permutations


@dataclass(frozen=True)
class Call:
    """A call that was answered.

    Attributes:
        number: What it has appended; None for a read.
        seen: Each list that it was given, by its name, with its own number.
        began_s: When it was sent.
        ended_s: When its answer came.
    """

    number: int | None
    seen: Mapping[str, Sequence[int]]
    began_s: float
    ended_s: float


def complaints(calls: Sequence[Call]) -> list[str]:
    """Return why no order of the calls explains what they saw; empty if one does."""
    longest: dict[str, Sequence[int]] = {}
    for call in calls:
        for name, numbers in call.seen.items():
            longest[name] = max(longest.get(name, ()), numbers, key=len)
    found = [
        f"a call saw {list(numbers)} in {name}, which is no beginning of {list(longest[name])}"
        for call in calls
        for name, numbers in call.seen.items()
        if list(longest[name][: len(numbers)]) != list(numbers)
    ]
    found += [
        f"{name} has a number twice: {list(numbers)}"
        for name, numbers in longest.items()
        if len(set(numbers)) < len(numbers)
    ]
    if found:
        return found
    order = TopologicalSorter[int]()
    for before, after in _edges(calls, longest):
        order.add(after, before)
    try:
        order.prepare()
    except CycleError as error:
        steps = [calls[at] for at in error.args[1]]
        return [" comes before ".join(map(str, steps))]
    return []


def _edges(
    calls: Sequence[Call], longest: Mapping[str, Sequence[int]]
) -> Iterator[tuple[int, int]]:
    """Yield pairs of calls, by their positions, of which the first must come before the second."""
    appends = {call.number: at for at, call in enumerate(calls) if call.number is not None}
    for numbers in longest.values():
        yield from ((appends[one], appends[two]) for one, two in pairwise(numbers))
    for at, call in enumerate(calls):
        for name, numbers in call.seen.items():
            yield from _around(at, call, numbers, longest[name][len(numbers) :], appends)
    for one, two in permutations(range(len(calls)), 2):
        if calls[one].ended_s < calls[two].began_s:
            yield one, two


def _around(
    at: int,
    call: Call,
    numbers: Sequence[int],
    later: Sequence[int],
    appends: Mapping[int, int],
) -> Iterator[tuple[int, int]]:
    """Yield what a list says of one call: a read comes after the last append that it saw, and before the next one."""
    if call.number is None and numbers:
        yield appends[numbers[-1]], at
    if later:
        yield at, appends[later[0]]
