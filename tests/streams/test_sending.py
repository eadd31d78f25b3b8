"""Requests that handlers and workflows send: each is processed once, as a transaction of its own."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from penstock import (
    Aborted,
    App,
    AskFailed,
    Emit,
    Entity,
    OutsideTransaction,
    UserError,
    ask,
    call,
    emit,
    flow,
    key,
    now,
    request_id,
    savepoint,
    send,
    send_after,
    send_at,
    stream,
)
from penstock.dataflow.analysis.analyze import analyze_app
from penstock.engine.limits import Limits
from tests.streams.two_ways import Kit

orders = stream("orders", tuple[str, int])
restocked = stream("restocked", str)


class Item(Entity):
    name: str = key()
    stock: int = 0
    log: list[str] = []

    def sell(self, amount: int) -> None:
        self.stock -= amount
        send(Item.note, self, f"sold {amount}")
        if self.stock < 0:
            send(Item.restock, self, 10)

    def restock(self, amount: int) -> None:
        self.stock += amount
        emit(restocked, self.name)

    def note(self, text: str) -> None:
        self.log.append(text)

    def note_id(self) -> None:
        self.log.append(request_id())

    def take(self, amount: int) -> int:
        if amount > self.stock:
            raise ValueError(f"only {self.stock} left")
        self.stock -= amount
        return self.stock

    def fail_after_sending(self) -> None:
        send(Item.note, self, "never")
        raise ValueError

    def send_in_a_block(self) -> None:
        try:
            with savepoint():
                send(Item.note, self, "never")
                raise ValueError
        except ValueError:
            send(Item.note, self, "once")

    def remind(self) -> None:
        send_after(timedelta(hours=1), Item.note_time, self)

    def remind_after(self, days: int) -> None:
        send_after(timedelta(days=days), Item.note_time, self)

    def remind_at(self, when: datetime) -> None:
        send_at(when, self.note_time)

    def remind_at_seven(self) -> None:
        send_at(datetime(2026, 1, 2, 7), self.note_time)  # noqa: DTZ001 -- the mistake

    def remind_another(self, name: str) -> None:
        send_after(timedelta(hours=1), Item(name).note_time)
        send(Item(name).note, "bound")

    def note_time(self) -> None:
        self.log.append(now().isoformat())

    def send_wrongly(self) -> None:
        send(Item.note, self, 5)  # type: ignore[arg-type]

    def ask_entity(self) -> None:
        ask(Item.take, self, 1)

    def forever(self) -> None:
        send(Item.forever, self)


class Buyer:
    """Asks the entity, and publishes its stock."""

    async def on_event(self, order: tuple[str, int], out: Emit[str]) -> None:
        name, amount = order
        try:
            left = await ask(Item.take, Item(name), amount)
        except AskFailed as failed:
            out(f"failed: {failed}")
        else:
            out(f"{left} left")


class BoundBuyer:
    """Asks by the method of a reference."""

    async def on_event(self, order: tuple[str, int], out: Emit[int]) -> None:
        name, amount = order
        out(await ask(Item(name).take, amount))


def sales() -> Kit:
    kit = Kit(
        App(
            "shop",
            Item,
            restocked,
            call(orders, Item.sell, lambda order: (Item(order[0]), order[1])),
        )
    )
    kit.call.Item.create("tea", stock=5)
    return kit


def test_send_is_a_request_of_its_own() -> None:
    """The requests that a handler sends run after it, in order."""
    kit = sales()
    kit.call.Item("tea").sell(7)
    item = kit.entity("Item", "tea")
    assert item == {"name": "tea", "stock": 8, "log": ["sold 7"]}
    assert kit.atoms(restocked) == [["tea"]]


def test_a_failed_transaction_sends_nothing() -> None:
    """An abort takes back what was sent; so does a savepoint."""
    kit = sales()
    with pytest.raises(Aborted):
        kit.call.Item("tea").fail_after_sending()
    kit.call.Item("tea").send_in_a_block()
    assert kit.entity("Item", "tea") == {"name": "tea", "stock": 5, "log": ["once"]}


def test_ids_of_sent_requests() -> None:
    """A sent request has an id of its own, under the id of its cause."""
    kit = sales()
    kit.call.with_id("r")(Item.sell, Item("tea"), 1)
    known = kit.runtime._known
    assert "r~~1" in known


def test_send_after_waits_for_its_time() -> None:
    """A delayed request runs at its time, which is its `now()`."""
    kit = sales()
    kit.call.Item("tea").remind()
    kit.settle()
    assert kit.entity("Item", "tea") == {"name": "tea", "stock": 5, "log": []}
    kit.clock.advance(timedelta(hours=2))
    kit.settle()
    item = kit.entity("Item", "tea")
    assert item is not None
    assert item["log"] == ["2026-01-01T01:00:00+00:00"]


@pytest.mark.parametrize("days", [-1, 365_001, 999_999_999])
def test_a_delay_is_neither_negative_nor_too_long_for_the_log(days: int) -> None:
    """The handler gets the error, with its line; otherwise its epoch could not be written."""
    with pytest.raises(
        Aborted, match=r"Item.remind_after, line \d+: .*(past|1,000 years)"
    ) as refused:
        sales().call.Item("tea").remind_after(days)
    assert refused.value.code == "aborted"


def test_arguments_are_checked_when_sent() -> None:
    """A wrong argument is an error of the handler that sends, and not of its caller."""
    with pytest.raises(Aborted, match=r"Item.send_wrongly, line \d+: Item.note") as refused:
        sales().call.Item("tea").send_wrongly()
    assert refused.value.code == "aborted"


def test_send_at_waits_for_its_time() -> None:
    """A request that is sent at a time runs at this time, whatever its zone."""
    kit = sales()
    kit.call.Item("tea").remind_at(datetime(2026, 1, 1, 5, 30, tzinfo=timezone(timedelta(hours=5))))
    kit.clock.advance(timedelta(minutes=29))
    kit.settle()
    assert kit.entity("Item", "tea") == {"name": "tea", "stock": 5, "log": []}
    kit.clock.advance(timedelta(hours=2))
    kit.settle()
    assert kit.entity("Item", "tea") == {
        "name": "tea",
        "stock": 5,
        "log": ["2026-01-01T00:30:00+00:00"],
    }


def test_send_at_a_time_that_has_passed() -> None:
    """Such a request is due at once."""
    kit = sales()
    kit.call.Item("tea").remind_at(datetime(2025, 1, 1, tzinfo=UTC))
    assert len(kit.entity("Item", "tea")["log"]) == 1  # type: ignore[index]


def test_send_at_needs_an_instant() -> None:
    """A time without a zone, and one that the log cannot store, are errors of the handler."""
    kit = sales()
    with pytest.raises(Aborted, match=r"Item.remind_at_seven, line \d+: .* no time zone"):
        kit.call.Item("tea").remind_at_seven()
    with pytest.raises(Aborted, match="1,000 years"):
        kit.call.Item("tea").remind_at(datetime(9999, 1, 1, tzinfo=UTC))


def test_the_method_of_a_reference_is_sent() -> None:
    """It names the entity, so no reference is repeated."""
    kit = sales()
    kit.call.Item.create("milk", stock=1)
    kit.call.Item("tea").remind_another("milk")
    kit.clock.advance(timedelta(hours=1))
    kit.settle()
    log = kit.entity("Item", "milk")["log"]  # type: ignore[index]
    assert log == ["bound", "2026-01-01T01:00:00+00:00"]


def test_a_task_asks_by_the_method_of_a_reference() -> None:
    """A task cannot read the entity, and needs only its name."""
    kit = Kit(App("shop", Item, restocked, flow("buy", orders).task(BoundBuyer).sink("results")))
    kit.call.Item.create("tea", stock=5)
    kit.append(orders, [("tea", 2)])
    assert [event for atom in kit.atoms("results") for event in atom] == [3]


def test_a_workflow_calls_the_method_of_a_reference() -> None:
    """All requests go to one entity."""
    target = call(orders, Item("tea").take, lambda order: (order[1],))
    kit = Kit(App("shop", Item, restocked, target))
    kit.call.Item.create("tea", stock=5)
    kit.append(orders, [("x", 2), ("y", 1)])
    assert kit.entity("Item", "tea")["stock"] == 2  # type: ignore[index]
    assert any(edge.target.member == "take" for edge in analyze_app(kit.runtime.app).edges)


def test_a_workflow_calls_entities() -> None:
    """Each event of a stream becomes a request."""
    kit = sales()
    kit.append(orders, [("tea", 1), ("tea", 2)])
    assert kit.entity("Item", "tea") == {"name": "tea", "stock": 2, "log": ["sold 1", "sold 2"]}


def test_a_failed_call_is_a_failed_request() -> None:
    """Its failure is recorded under its own id; the other events are processed."""
    kit = sales()
    kit.append(orders, [("coffee", 1), ("tea", 2)])
    replies = [reply for _, reply in kit.runtime._known.values() if reply.error is not None]
    assert [reply.error for reply in replies] == ["no-such-entity"]
    assert kit.entity("Item", "tea") == {"name": "tea", "stock": 3, "log": ["sold 2"]}


def test_arguments_that_fail_set_the_atom_aside() -> None:
    """No request of the atom is sent."""
    kit = Kit(
        App("shop", Item, call(orders, Item.sell, lambda order: (Item(order[0]), 1 // order[1])))
    )
    kit.call.Item.create("tea", stock=5)
    kit.append(orders, [("tea", 1), ("tea", 0)], check=False)
    assert kit.entity("Item", "tea") == {"name": "tea", "stock": 5, "log": []}
    assert kit.atoms("orders-sell-failed")[0][0].message.startswith("ZeroDivisionError")


class Basket(Entity):
    name: str = key()
    sold: list[tuple[str, int]] = []

    def sell_all(self, sold: list[tuple[str, int]]) -> None:
        for name, amount in sold:
            Item(name).sell(amount)
        self.sold = [*self.sold, *sold]


def whole_atoms(*names: str) -> Kit:
    baskets = call(orders, Basket.sell_all, lambda atom: (Basket("all"), atom), whole_atoms=True)
    kit = Kit(App("shop", Item, Basket, restocked, baskets))
    kit.call.Basket.create("all")
    for name in names:
        kit.call.Item.create(name, stock=5)
    return kit


def attribute(kit: Kit, entity: str, key: str, name: str) -> Any:
    state = kit.entity(entity, key)
    assert state is not None
    return state[name]


def test_a_whole_atom_is_one_transaction() -> None:
    """All events of an atom take effect, in their order; or none of them, and the next atom does."""
    kit = whole_atoms("tea", "milk")
    kit.append(orders, [("tea", 2), ("milk", 1), ("tea", 1)])
    kit.append(orders, [("tea", 1), ("coffee", 1)])
    kit.append(orders, [("milk", 3)])
    assert attribute(kit, "Basket", "all", "sold") == [
        ("tea", 2),
        ("milk", 1),
        ("tea", 1),
        ("milk", 3),
    ]
    assert kit.entity("Item", "tea") == {"name": "tea", "stock": 2, "log": ["sold 2", "sold 1"]}
    assert attribute(kit, "Item", "milk", "stock") == 1
    replies = [reply for _, reply in kit.runtime._known.values() if reply.error is not None]
    assert [reply.error for reply in replies] == ["no-such-entity"]


def test_an_empty_atom_calls_nothing() -> None:
    """A workflow publishes an atom for each that it takes; one without events is no request."""
    none = flow("none", orders).filter(lambda order: order[1] > 1).sink("some")
    taken = call(none, Basket.sell_all, lambda atom: (Basket("all"), atom), whole_atoms=True)
    kit = Kit(App("shop", Item, Basket, restocked, none, taken))
    kit.call.Basket.create("all")
    kit.call.Item.create("tea", stock=5)
    before = len(kit.runtime._known)
    kit.append(orders, [("tea", 1)])
    assert len(kit.runtime._known) == before + 1
    kit.append(orders, [("tea", 2)])
    assert attribute(kit, "Basket", "all", "sold") == [("tea", 2)]


def buying() -> Kit:
    kit = Kit(App("shop", Item, restocked, flow("buy", orders).task(Buyer).sink("results")))
    kit.call.Item.create("tea", stock=5)
    return kit


def test_a_task_asks_an_entity() -> None:
    """The result comes back when the request of the entity has been processed."""
    kit = buying()
    kit.append(orders, [("tea", 2), ("tea", 1)])
    assert [event for atom in kit.atoms("results") for event in atom] == ["3 left", "2 left"]


def test_a_failed_entity_is_an_exception() -> None:
    """The failure of the request arrives at the await."""
    kit = buying()
    kit.append(orders, [("tea", 9)])
    assert [event for atom in kit.atoms("results") for event in atom] == [
        "failed: Item.take: ValueError: only 5 left"
    ]


def test_an_entity_asks_no_entity() -> None:
    """An entity calls another entity itself."""
    with pytest.raises(OutsideTransaction, match="only the handler of a task can ask an entity"):
        sales().call.Item("tea").ask_entity()


def test_send_outside_of_a_transaction() -> None:
    """From outside, one calls."""
    with pytest.raises(OutsideTransaction, match="use a client"):
        send(Item.restock, Item("tea"), 1)


def test_requests_without_end_are_cut() -> None:
    """A request that sends itself again stops no other request."""
    kit = sales()
    kit.runtime._runner._limits = Limits(cascade_steps=10)
    kit.call.Item("tea").forever()
    kit.call.Item("tea").restock(1)
    assert kit.atoms(restocked) == [["tea"]]


def test_arguments_are_a_tuple() -> None:
    """The message shows the form."""
    wrong = call(orders, Item.sell, lambda order: [Item(order[0]), 1])  # type: ignore[arg-type, return-value]
    kit = Kit(App("shop", Item, wrong))
    with pytest.raises(UserError, match="the arguments of orders-sell are a tuple"):
        kit.append(orders, [("tea", 1)])


def test_every_request_has_a_position_of_its_own() -> None:
    """Requests that a workflow sends follow each other in the log."""
    kit = sales()
    kit.append(orders, [("tea", 1), ("tea", 1), ("coffee", 1)])
    positions = [reply.lsn for _, reply in kit.runtime._known.values()]
    assert positions == list(range(len(positions)))
