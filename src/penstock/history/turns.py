"""The turns of two processes that replay the epochs of one span: each process runs every second turn.

The division depends on the commits alone, so both processes find the same one.
"""

from collections.abc import Iterable
from typing import Final

from penstock.journal.api import Commit, PartKind

TURN_REQUESTS: Final = 2_000
"""A turn ends with the epoch that reaches this number of requests."""

SHARED_MIN: Final = 10_000
"""A span with fewer requests is run by one process."""


class Turns:
    """Says which epochs the second process runs; it is asked for each epoch of a span, in order."""

    def __init__(self) -> None:
        self._turn = 0
        self._requests = 0

    def are_second(self, commit: Commit) -> bool:
        """Say whether the second process runs the epoch of a commit, and go on behind this epoch."""
        if self._requests >= TURN_REQUESTS:
            self._turn += 1
            self._requests = 0
        self._requests += requests_of(commit)
        return self._turn % 2 == 1


def requests_of(commit: Commit) -> int:
    """Return the number of requests of an epoch."""
    return sum(part.rows for part in commit.parts_of(PartKind.TRANSACTIONS))


def is_worth_sharing(commits: Iterable[Commit]) -> bool:
    """Say whether the epochs of a span have enough requests for two processes."""
    requests = 0
    return any((requests := requests + requests_of(commit)) >= SHARED_MIN for commit in commits)
