"""The limits of a transaction; settings use them without the engine."""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.base.setting import setting
from penstock.errors import ConfigError


class TimeLimit(NamedTuple):
    """How long one handler may run.

    Attributes:
        time_ms: Milliseconds of processor time.
        wall_ms: Milliseconds on a clock: a wider bound, for a handler that waits.
        is_declared: Whether `@limit(time=…)` has widened both.
    """

    time_ms: int
    wall_ms: int
    is_declared: bool = False

    def exceeded(self, what: str, setting: str) -> str:
        """Return the message of a handler that has exceeded a bound.

        Args:
            what: The handler: `Item.update_stock`.
            setting: The bound: `time_ms` or `wall_ms`.
        """
        told = f"{what} ran longer than {setting} = {getattr(self, setting)}"
        if setting == "wall_ms":
            return f"{told} by the clock: it waits, or the machine is overloaded; raise limits.wall_ms if it must wait"
        if self.is_declared:
            return f"{told} of processor time, which its @limit(time=…) allows; divide its work, or raise that"
        return f'{told} of processor time; divide its work, or declare that it needs more: @limit(time="60s")'


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one transaction; exceeding a limit undoes that transaction only."""

    time_ms: int = setting(
        2_000,
        "processor time of one handler, in milliseconds: as long as one caller can stop all others",
        at_least=1,
    )
    wall_ms: int = setting(
        10_000,
        "time of one handler by the clock, for one that waits; at least `limits.time_ms`",
        at_least=1,
    )
    memory_bytes: int = setting(1 << 30, "memory that a handler may allocate", at_least=1 << 20)
    depth: int = setting(900, "Python call depth inside a handler", at_least=50, at_most=100_000)
    reply_bytes: int = setting(4 << 20, "encoded size of a result", at_least=64)
    state_bytes: int = setting(4 << 20, "encoded size of one entity", at_least=64)
    output_bytes: int = setting(
        64 << 20,
        "encoded size of the result and of all changed entities of one transaction",
        at_least=64,
    )
    entities: int = setting(1_000_000, "entities that a single transaction may use", at_least=1)
    cascade_steps: int = setting(
        10_000,
        "requests, and workflow steps, of a cascade before a later record continues it",
        at_least=1,
    )
    cascade_queue: int = setting(
        1_000_000,
        "requests, and workflow steps, that may wait in a cascade; the request or the step that causes more fails",
        at_least=1,
    )
    cascade_queue_bytes: int = setting(
        64 << 20,
        "bytes of the requests, and of the workflow steps, that wait in a cascade",
        at_least=64,
    )

    def __post_init__(self) -> None:
        """Refuse a bound that would have no effect."""
        if self.wall_ms < self.time_ms:
            raise ConfigError(
                f"limits.wall_ms = {self.wall_ms} is less than limits.time_ms = {self.time_ms}, which would "
                "have no effect; raise limits.wall_ms, too"
            )

    def time_limit(self, declared_ms: int | None) -> TimeLimit:
        """Return the bounds of a handler that declares so many milliseconds; None declares nothing."""
        if declared_ms is None:
            return TimeLimit(self.time_ms, self.wall_ms)
        return TimeLimit(declared_ms, self.wall_ms - self.time_ms + declared_ms, is_declared=True)
