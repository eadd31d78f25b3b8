"""A clock that stands still until a test moves it."""

from datetime import UTC, datetime, timedelta
from typing import Final

from penstock.errors import ConfigError

_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


class VirtualClock:
    """The clock behind `penstock.now()` in a test; it moves only when the test moves it.

    Attributes:
        now: The time, in UTC.
    """

    def __init__(self, now: datetime) -> None:
        """Start at a time.

        Raises:
            ConfigError: `now` has no time zone.
        """
        self.set(now)

    def set(self, now: datetime) -> None:
        """Move to a time, earlier or later.

        Raises:
            ConfigError: `now` has no time zone.
        """
        if now.tzinfo is None:
            raise ConfigError(f"{now} has no time zone; write datetime(…, tzinfo=UTC)")
        self.now = now.astimezone(UTC)

    def advance(self, by: timedelta) -> None:
        """Move by a duration; a negative duration moves back."""
        self.now += by

    @property
    def time_us(self) -> int:
        """The time in microseconds since the Unix epoch."""
        return (self.now - _BEGINNING) // timedelta(microseconds=1)
