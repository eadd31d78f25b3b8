"""An application whose guests are the readers of another application, with events about them and state by guest."""

from dataclasses import dataclass

from penstock import App, Emit, Entity, flow, key, registry, stream


@registry.entity("/library/Reader")
class Reader(Entity):
    reader_id: str = key()


@dataclass(frozen=True)
class Arrival:
    guest: Reader
    words: str


arrivals = stream("arrivals", Arrival)


def guest_of(arrival: Arrival) -> Reader:
    return arrival.guest


class Album:
    words: list[str] = []

    def on_event(self, arrival: Arrival, out: Emit[Arrival]) -> None:
        self.words.append(arrival.words)
        out(arrival)


albums = flow("albums", arrivals).key(guest_of).task(Album).sink("seen")
hotel = App("hotel", Reader, arrivals, albums)
