"""The cases of portals."""

from dataclasses import dataclass
from typing import Any

from penstock import Emit, flow, portal, stream

from .case import Atoms, case

totals = portal("totals", int, int)


class Total:
    total: int = 0

    def on_event(self, number: int) -> None:
        self.total += number

    @totals.reply
    def on_ask(self, question: int) -> int:
        return self.total


class Asker:
    async def on_event(self, number: int, out: Emit[int]) -> None:
        out(await totals.ask(number))


@case(
    flow("adding", stream("addends", int)).task(Total).sink("nothing-added", int),
    flow("asking", stream("questions", int)).task(Asker).sink("answers"),
    rounds=[[("addends", [1, 2, 3, 4]), ("questions", [n])] for n in range(10)],
)
def portal_reads_between_atoms(atoms: Atoms) -> None:
    """A portal is asked between two atoms of its task, so it never sees half of an atom."""
    assert atoms("answers") == [answer for n in range(10, 101, 10) for answer in ([], [n])]


swap, exchange = portal("swap", int, int), portal("exchange", int, int)


class Previous:
    value: int = 0
    other: int = 0

    def on_event(self, number: int) -> None:
        raise AssertionError

    @swap.reply
    def on_swap(self, number: int) -> int:
        previous, self.value = self.value, number
        return previous

    @exchange.reply
    def on_exchange(self, number: int) -> int:
        previous, self.other = self.other, number
        return previous


class FollowingSwapper:
    def on_event(self, number: int, out: Emit[tuple[int, int]]) -> None:
        exchange.ask(number).then(self.on_previous, number, out)

    def on_previous(self, previous: int, number: int, out: Emit[tuple[int, int]]) -> None:
        out((number, previous))


class AwaitingSwapper:
    async def on_event(self, number: int, out: Emit[tuple[int, int]]) -> None:
        out((number, await swap.ask(number)))


swappers = stream("swapped", int)


@case(
    flow("previous", stream("never", int)).task(Previous).sink("nothing-previous", int),
    flow("await-swap", swappers).task(AwaitingSwapper).sink("awaited"),
    flow("follow-swap", swappers).task(FollowingSwapper).sink("followed"),
    rounds=[[("swapped", list(range(n, n + 8))) for n in range(0, 128, 8)]],
)
def request_and_reply_with_captured_values(atoms: Atoms) -> None:
    """A handler goes on with its variables when the reply comes, behind an `await` and in a function."""
    for name in ("awaited", "followed"):
        pairs = [pair for atom in atoms(name) for pair in atom]
        assert pairs == [(0, 0), *((n, n - 1) for n in range(1, 128))]


@dataclass
class Put:
    item: str


@dataclass
class Cart:
    user: str
    item: str = ""  # empty: check out


take = portal("take", str, bool, key=str)


class Inventory:
    amount: int = 0

    def on_event(self, put: Put) -> None:
        self.amount += 1

    @take.reply
    def on_take(self, item: str) -> bool:
        if self.amount == 0:
            return False
        self.amount -= 1
        return True


class CartTask:
    items: list[str] = []

    async def on_event(self, cart: Cart, out: Emit[tuple[str, list[str]]]) -> None:
        if not cart.item:
            out((cart.user, self.items))
            self.items = []
        elif await take.ask(cart.item):
            self.items.append(cart.item)


def user_of(cart: Cart) -> str:
    return cart.user


def item_of(put: Put) -> str:
    return put.item


inventory = flow("stock", stream("puts", Put)).key(item_of).task(Inventory).sink("nothing-put", int)


def carts(name: str, *, exclusive: bool) -> Any:
    """Return a workflow of carts, which ask the inventory."""
    carting = flow(name, stream(f"{name}-events", Cart)).key(user_of)
    return carting.task(CartTask, exclusive=exclusive).sink(f"{name}-orders")


@case(
    inventory,
    carts("carts", exclusive=False),
    rounds=[
        [("puts", [Put("i1"), Put("i1"), Put("i2")])],
        [("carts-events", [Cart("U1", "i1"), Cart("U2", "i2")])],
        [("carts-events", [Cart("U3", "i1"), Cart("U4", "i2")])],
        [("carts-events", [Cart(f"U{n}") for n in range(1, 5)])],
    ],
)
def shopping_cart(atoms: Atoms) -> None:
    """Carts ask the inventory, which never sells more than it has."""
    orders = dict(order for atom in atoms("carts-orders") for order in atom)
    assert orders == {"U1": ["i1"], "U2": ["i2"], "U3": ["i1"], "U4": []}


@case(
    inventory,
    carts("exclusive", exclusive=True),
    rounds=[
        [("puts", [Put("i3")])],
        [("exclusive-events", [Cart("A", "i3"), Cart("A")])],
    ],
)
def exclusive_key_waits(atoms: Atoms) -> None:
    """With exclusive, an event of a key waits until the handler of the key has its reply."""
    assert atoms("exclusive-orders") == [[], [], [("A", ["i3"])]]


@case(
    inventory,
    carts("hasty", exclusive=False),
    rounds=[
        [("puts", [Put("i4")])],
        [("hasty-events", [Cart("A", "i4"), Cart("A")])],
    ],
)
def without_exclusive_the_checkout_overtakes(atoms: Atoms) -> None:
    """Without it, the event runs while the handler waits."""
    assert atoms("hasty-orders") == [[("A", [])], []]
