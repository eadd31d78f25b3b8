"""An application with entities that emit and send, and workflows that ask, loop and call, for random programs."""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from penstock import (
    App,
    AskFailed,
    Emit,
    Entity,
    PerTask,
    ask,
    call,
    connect,
    emit,
    entity,
    flow,
    key,
    portal,
    send,
    sequencer,
    stream,
    uuid,
)
from penstock.model.call import Call, encoded

numbers = stream("numbers", int)
moved = stream("moved", tuple[str, int])
stock = portal("stock", int, int)
NAMES = ("a", "b", "c", "d")


class Refused(Exception):
    """A handler fails."""


@entity
class Account(Entity):
    name: str = key()
    balance: int = 10

    def add(self, amount: int) -> int:
        self.balance += amount
        if self.balance < 0:
            raise Refused
        return self.balance

    def move(self, to: "Account", amount: int) -> str:
        emit(moved, (self.name, -amount))
        self.add(-amount)
        to.add(amount)
        emit(moved, (to.name, amount))
        return str(uuid())

    def pass_on(self, to: "Account", times: int) -> None:
        self.balance -= 1
        emit(numbers, times)
        if times:
            send(Account.pass_on, to, self, times - 1)
            send(Account.add, self, times)


class Total:
    total: int = 0
    atoms: PerTask[int] = 0

    def on_event(self, event: tuple[str, int], out: Emit[int]) -> None:
        self.total += event[1]
        self.atoms += 1
        out(self.total * 1_000 + self.atoms)


class Shelf:
    left: int = 5

    def on_event(self, number: int, out: Emit[int]) -> None:
        self.left += number

    @stock.reply
    def take(self, amount: int) -> int:
        self.left -= amount
        if self.left < -40:
            raise Refused
        return self.left


class Asker:
    async def on_event(self, number: int, out: Emit[int]) -> None:
        try:
            out(await stock.ask(number % 7))
        except AskFailed:
            out(-1)


class EntityAsker:
    asked: int = 0

    async def on_event(self, number: int, out: Emit[int]) -> None:
        self.asked += 1
        try:
            asked = ask(Account.add, Account(NAMES[number % 4]), -(number % 5))
            out(await asked.within(timedelta(microseconds=number % 2 + 1)))
        except AskFailed:
            out(-self.asked)


def application() -> App:
    loop = sequencer("loop", int, numbers)
    down = flow("down", loop).filter(lambda n: n > 0).map(lambda n: n // 2).sink("less", int)
    return App(
        "cascades",
        Account,
        flow("totals", moved).key(lambda event: event[0]).task(Total).sink("totals"),
        flow("shelf", numbers).task(Shelf).sink("shelved"),
        flow("asking", numbers).task(Asker).sink("stocks"),
        flow("checking", numbers).filter(lambda n: n % 3 == 0).task(EntityAsker).sink("balances"),
        connect(down, loop),
        call(loop, Account.add, lambda number: (Account(NAMES[number % 4]), number % 3)),
    )


app = application()


def body_of(method: Any, *arguments: Any) -> bytes:
    name, *rest = arguments
    body, _ = encoded(app, Call("Account", name, method, tuple(rest)))
    return body


accounts = st.sampled_from(NAMES)
calls = st.one_of(
    st.builds(lambda name, n: body_of("add", name, n), accounts, st.integers(-9, 9)),
    st.builds(
        lambda name, to, n: body_of("move", name, Account(to), n),
        accounts,
        accounts,
        st.integers(0, 9),
    ),
    st.builds(
        lambda name, to, n: body_of("pass_on", name, Account(to), n),
        accounts,
        accounts,
        st.integers(0, 6),
    ),
)
appends = st.builds(
    lambda atom: app.append("numbers", atom), st.lists(st.integers(0, 40), max_size=5)
) | st.builds(
    lambda atom: app.append("moved", atom),
    st.lists(st.tuples(accounts, st.integers(-9, 9)), max_size=4),
)
bodies = calls | appends
"""Bodies of random records."""
