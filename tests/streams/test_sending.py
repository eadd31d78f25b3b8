"""Requests that handlers and workflows send: each is processed once, as a transaction of its own."""

from datetime import timedelta

import pytest

from penstock import (
    Aborted,
    App,
    AskFailed,
    Emit,
    Entity,
    OutsideTransaction,
    RequestError,
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
    stream,
)
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
    """The handler gets the error; otherwise its epoch could not be written."""
    with pytest.raises(RequestError, match=r"past|1,000 years"):
        sales().call.Item("tea").remind_after(days)


def test_arguments_are_checked_when_sent() -> None:
    """A wrong argument is an error of the handler that sends."""
    with pytest.raises(RequestError, match="note"):
        sales().call.Item("tea").send_wrongly()


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
