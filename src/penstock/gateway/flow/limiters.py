"""`RateLimiter` and `ConcurrencyLimiter`: the counts of one limit, for each of its groups.

A group is the value that a limit counts by: a principal, the fingerprint of a key, or nothing. Both
limiters first say how long a request must wait (`wait_s`) and count it later (`take`), so that a refused
request is counted by no limit. They have no clock: the caller passes the time.

Promises that a call takes about a microsecond for any number of groups, and that the memory is bounded.
"""

import heapq
from typing import Final, Protocol

Group = str | bytes
"""A principal's namespace, the fingerprint of a key, or empty text."""

GROUPS_MAX: Final = 100_000
"""The largest number of groups that a rate limiter remembers, about 20 MB."""

AGAIN_S: Final = 1.0
"""The pause after a refusal for requests under way, whose end is unknown."""


class Limiter(Protocol):
    """Counts the requests of each group."""

    def wait_s(self, group: Group, now_s: float) -> float:
        """Return the seconds until the limit admits a request of a group; 0 if it does now."""

    def take(self, group: Group, now_s: float) -> None:
        """Count an admitted request."""

    def release(self, group: Group) -> None:
        """End the time under way of an admitted request."""


class RateLimiter:
    """Limits a rate with the generic cell rate algorithm (ITU-T I.371), the leaky bucket as a meter.

    It stores one time for each group: when the group's bucket is empty again.
    """

    def __init__(self, rate_per_s: float, burst: int) -> None:
        """Limit each group.

        Args:
            rate_per_s: The requests per second in the long run.
            burst: The requests that are admitted at once after a rest.
        """
        self._interval_s = 1 / rate_per_s
        self._slack_s = (burst - 1) / rate_per_s
        self._empty_at_s: dict[Group, float] = {}
        self._prune_at = 1_024

    def __len__(self) -> int:
        return len(self._empty_at_s)

    def wait_s(self, group: Group, now_s: float) -> float:
        """Return the seconds until the limit admits a request of a group; 0 if it does now."""
        wait_s = self._empty_at_s.get(group, now_s) - now_s - self._slack_s
        # The subtraction of large times rounds; a thousandth of the interval must not refuse a request.
        return wait_s if wait_s > self._interval_s * 1e-3 else 0.0

    def take(self, group: Group, now_s: float) -> None:
        """Count an admitted request."""
        self._empty_at_s[group] = max(self._empty_at_s.get(group, now_s), now_s) + self._interval_s
        if len(self._empty_at_s) > self._prune_at:
            self._prune(now_s)

    def release(self, group: Group) -> None:
        """Do nothing: a rate counts a request once."""

    def _prune(self, now_s: float) -> None:
        """Forget the groups that have rested, and those nearest to rest if there are too many."""
        kept = {group: at_s for group, at_s in self._empty_at_s.items() if at_s > now_s}
        if len(kept) > GROUPS_MAX:
            longest = heapq.nlargest(GROUPS_MAX // 2, kept.items(), key=lambda item: item[1])
            kept = dict(longest)
        self._empty_at_s = kept
        self._prune_at = min(max(1_024, 2 * len(kept)), GROUPS_MAX)


class ConcurrencyLimiter:
    """Limits the requests that are under way; it remembers only groups that have some."""

    def __init__(self, at_once: int) -> None:
        """Admit at most `at_once` requests of each group."""
        self._at_once = at_once
        self._counts: dict[Group, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def wait_s(self, group: Group, now_s: float) -> float:
        """Return the seconds after which a request of a group may be sent again; 0 if it may now."""
        return AGAIN_S if self._counts.get(group, 0) >= self._at_once else 0.0

    def take(self, group: Group, now_s: float) -> None:
        """Count an admitted request."""
        self._counts[group] = self._counts.get(group, 0) + 1

    def release(self, group: Group) -> None:
        """End the time under way of an admitted request."""
        left = self._counts[group] - 1
        if left:
            self._counts[group] = left
        else:
            del self._counts[group]
