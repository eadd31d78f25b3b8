"""An application with each kind of stream operator, for plans and pictures."""

from datetime import timedelta

from penstock import (
    App,
    Emit,
    Entity,
    ask,
    call,
    connect,
    emit,
    flow,
    gather,
    generator,
    key,
    portal,
    send,
    send_after,
    sequencer,
    splitter,
    states,
    stream,
)

numbers = stream("numbers", int)
limit_of = portal("limit_of", int, int)


class Shelf(Entity):
    name: str = key()
    pieces: int = 0

    def take_away(self, pieces: int) -> int:
        self.pieces -= pieces
        if self.pieces < 2:
            send(Shelf.order, self, 10)
        for piece in range(pieces):
            emit(numbers, piece)
        return self.pieces

    def order(self, pieces: int) -> None:
        send_after(timedelta(days=1), Shelf.fill, self, pieces)

    def fill(self, pieces: int) -> None:
        self.pieces += pieces
        send(Shelf.create, "spare")


class Taking:
    left: int = 0

    async def on_event(self, number: int, out: Emit[int]) -> None:
        limit = await limit_of.ask(number)
        self.left = await ask(Shelf.take_away, Shelf("a"), min(limit, number))
        out(self.left)
        ask(Shelf.take_away, Shelf("b"), number).then(self.note, number)
        await gather(*[limit_of.ask(other) for other in range(number)])

    def note(self, left: int, number: int) -> None:
        doubled(left + number)


class Limits:
    total: int = 0

    def on_event(self, number: int) -> None:
        self.total += number

    @limit_of.reply
    def on_limit(self, number: int) -> int:
        return self.total - number

    def on_atom_complete(self) -> None:
        for _, state in states(self):
            state.total = 0


def doubled(left: int) -> int:
    return 2 * left


parity = splitter("parity", numbers, even=lambda n: n % 2 == 0, odd=lambda n: True)
loop = sequencer("loop", int, parity["odd"])
taken = flow("taking", loop).filter(lambda n: n > 0).task(Taking).sink("taken", int)
limits = flow("limits", parity["even"]).key(int).task(Limits).sink("limited", int)
watched = flow("watch", taken.failed).map(lambda failed: 1).sink("failures", int)
app = App(
    "depot",
    Shelf,
    parity,
    taken,
    limits,
    generator("counting", numbers, range(100), atom_size=10),
    connect(taken, loop),
    call(taken, Shelf.take_away, lambda n: (Shelf("a"), n)),
    call(watched, Shelf.create, lambda n: (f"failed-{n}",)),
)
