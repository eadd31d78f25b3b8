"""A clock that stands still until a test moves it."""

from datetime import UTC, datetime, timedelta
from typing import Final

from penstock.errors import ConfigError

_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


class VirtualClock:
    """What `penstock.now()` answers in a test; moves only when told to, and also backwards.

    Attributes:
        now: The time, in UTC.
    """

    def __init__(self, now: datetime) -> None:
        """Start at a time.

        Raises:
            ConfigError: `now` names no time zone.
        """
        self.set(now)

    def set(self, now: datetime) -> None:
        """Move to a time.

        Raises:
            ConfigError: `now` names no time zone.
        """
        if now.tzinfo is None:
            raise ConfigError(f"{now} names no time zone; write datetime(…, tzinfo=UTC)")
        self.now = now.astimezone(UTC)

    def advance(self, by: timedelta) -> None:
        """Move on (a negative `by` moves back)."""
        self.now += by

    @property
    def time_us(self) -> int:
        """The time in microseconds since the Unix epoch."""
        return (self.now - _BEGINNING) // timedelta(microseconds=1)
