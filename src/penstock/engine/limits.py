"""The limits of a transaction; settings use them without the engine."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from msgspec import Meta

from penstock.errors import ConfigError

Positive = Annotated[int, Meta(ge=1)]


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
    """The limits of one transaction; exceeding a limit undoes that transaction only.

    Attributes:
        time_ms: Milliseconds of processor time of one handler: as long as one caller can stop all others.
        wall_ms: Milliseconds on a clock of one handler, for handlers that wait.
        memory_bytes: Bytes that a handler may allocate on top of the process's own.
        reply_bytes: Encoded size of a result.
        state_bytes: Encoded size of one entity.
        output_bytes: Encoded size of the result and of all entities that it changed, together.
        entities: The most entities that a transaction may touch.
        cascade_steps: The most requests, and the most workflow steps, of a cascade before the rest becomes the
            work of a later record.
        cascade_queue: The most requests, and the most workflow steps, that may wait in a cascade; the request or the
            step that causes more fails.
        cascade_queue_bytes: The most bytes of the requests, and of the workflow steps, that wait in a cascade.
    """

    time_ms: Positive = 2_000
    wall_ms: Positive = 10_000
    memory_bytes: Annotated[int, Meta(ge=1 << 20)] = 1 << 30
    depth: Annotated[int, Meta(ge=50, le=100_000)] = 900
    reply_bytes: Annotated[int, Meta(ge=64)] = 4 << 20
    state_bytes: Annotated[int, Meta(ge=64)] = 4 << 20
    output_bytes: Annotated[int, Meta(ge=64)] = 64 << 20
    entities: Positive = 1_000_000
    cascade_steps: Positive = 10_000
    cascade_queue: Positive = 1_000_000
    cascade_queue_bytes: Annotated[int, Meta(ge=64)] = 64 << 20

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
