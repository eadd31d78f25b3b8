"""The options of a run: a frozen value that its processes share."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["checkout", "transfer"]


@dataclass(frozen=True, slots=True)
class Options:
    """The workload, its rate and its duration.

    Attributes:
        kind: The kind of the measured requests.
        rate: Requests a second on a fixed schedule; 0 feeds as fast as they are processed.
        seconds: Length of the measured window.
        requests: Instead of `seconds`: exactly so many requests; 0 means by time.
        zipf: Exponent of the distribution of items, users, orders, accounts; 0 means uniform.
        users, items, orders: How many are loaded; a transfer has `users` accounts.
        seed: Everything drawn follows from it.
        warm_up: Requests before the measured ones.
        backlog: Records that wait for their reply at most, when the rate is 0.
        check_oracle: Whether to compare every reply and the state with the serial oracle.
    """

    kind: Kind = "checkout"
    rate: int = 0
    seconds: float = 20.0
    requests: int = 0
    zipf: float = 0.0
    users: int = 100_000
    items: int = 100_000
    orders: int = 100_000
    seed: int = 1
    warm_up: int = 60_000
    backlog: int = 30_000
    check_oracle: bool = False

    @property
    def entities(self) -> int:
        """How many entities are loaded."""
        if self.kind == "transfer":
            return self.users
        return self.users + self.items + self.orders

    @property
    def unit(self) -> str:
        """The noun for the measured requests, in the plural."""
        return f"{self.kind}s"
