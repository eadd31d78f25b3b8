"""The application that `tests.cluster.scaling` measures: requests that cost little, requests of a millisecond, and large atoms."""

import hashlib

from penstock import App, Emit, Entity, entity, flow, key, stream


def work(rounds: int) -> None:
    """Use the processor; the rounds of a millisecond differ from machine to machine."""
    hashlib.pbkdf2_hmac("sha256", b"", b"", rounds)


@entity
class Counter(Entity):
    """Counts its calls."""

    name: str = key()
    count: int = 0

    def add(self, rounds: int) -> int:
        """Work, and return the number of calls so far."""
        if rounds:
            work(rounds)
        self.count += 1
        return self.count


events = stream("events", tuple[str, int])


def name_of(event: tuple[str, int]) -> str:
    """Return the key of an event."""
    return event[0]


class Busy:
    """Works for each event of a key."""

    count: int = 0

    def on_event(self, event: tuple[str, int], out: Emit[int]) -> None:
        """Work, and count."""
        work(event[1])
        self.count += 1


app = App("scaling", Counter, flow("busy", events).key(name_of).task(Busy).sink("done"))
