"""Entities publish events: what a transaction emits on a stream is one atom of it."""

from typing import Any

import pytest

from penstock import (
    Aborted,
    App,
    Emit,
    Entity,
    OutsideTransaction,
    ReadonlyViolation,
    RequestError,
    UserError,
    emit,
    flow,
    key,
    readonly,
    savepoint,
    stream,
)
from penstock.engine.limits import Limits
from penstock.runtime.local.runtime import LocalRuntime
from tests.streams.two_ways import Kit

sales = stream("sales", int)
refunds = stream("refunds", int)
strange = stream("strange", int)


class Revenue:
    total: int = 0

    def on_event(self, amount: int, out: Emit[int]) -> None:
        self.total += amount
        out(self.total)


class Item(Entity):
    item_id: str = key()
    stock: int = 0

    def sell(self, *amounts: int) -> None:
        for amount in amounts:
            self.stock -= amount
            emit(sales, amount)

    def sell_or_fail(self, amount: int) -> None:
        self.sell(amount)
        raise ValueError("no")

    def sell_in_a_block(self, amount: int) -> None:
        emit(sales, 1)
        try:
            with savepoint():
                self.sell(amount)
                raise ValueError
        except ValueError:
            emit(refunds, amount)

    @readonly
    def look(self) -> int:
        emit(sales, 1)
        return self.stock

    def emit_strange(self) -> None:
        emit(strange, 1)

    def emit_text(self) -> None:
        emit(sales, "one")  # type: ignore[misc]

    def change_after_emitting(self) -> None:
        amounts = [1, 2]
        emit(baskets, amounts)
        amounts.append(3)


baskets = stream("baskets", list[int])


def kit() -> Kit:
    app = App("shop", Item, flow("revenue", sales).task(Revenue).sink("revenues"), refunds, baskets)
    made = Kit(app)
    made.call.Item.create("tea", stock=10)
    return made


def test_a_transaction_emits_one_atom() -> None:
    """All events of one transaction on a stream are one atom, in order."""
    shop = kit()
    shop.call.Item("tea").sell(1, 2)
    shop.call.Item("tea").sell(3)
    assert shop.atoms(sales) == [[1, 2], [3]]
    assert shop.atoms("revenues") == [[1, 3], [6]]


def test_a_failed_transaction_emits_nothing() -> None:
    """An abort publishes no event."""
    shop = kit()
    with pytest.raises(Aborted):
        shop.call.Item("tea").sell_or_fail(1)
    assert shop.atoms(sales) == []


def test_a_savepoint_undoes_its_events() -> None:
    """Events of a block that is undone are not published; those before and after it are."""
    shop = kit()
    shop.call.Item("tea").sell_in_a_block(5)
    assert (shop.atoms(sales), shop.atoms(refunds)) == ([[1]], [[5]])


def test_readonly_emits_nothing() -> None:
    """A @readonly method cannot publish."""
    shop = kit()
    with pytest.raises(ReadonlyViolation, match="emitted an event on stream sales"):
        shop.call.Item("tea").look()
    assert shop.atoms(sales) == []


def test_a_stream_of_another_application() -> None:
    """A stream that the application does not have takes no event."""
    with pytest.raises(UserError, match="stream strange is not part of an application"):
        kit().call.Item("tea").emit_strange()


def test_an_event_of_the_wrong_type() -> None:
    """An event must fit the type of its stream."""
    with pytest.raises(Aborted, match="stream sales has events of type int"):
        kit().call.Item("tea").emit_text()


def test_an_event_is_copied() -> None:
    """A later change of an emitted list changes no event."""
    shop = kit()
    shop.call.Item("tea").change_after_emitting()
    assert shop.atoms(baskets) == [[[1, 2]]]


def test_emit_outside_of_a_transaction() -> None:
    """Only a handler can emit."""
    with pytest.raises(OutsideTransaction, match="append them"):
        emit(sales, 1)


def test_append_of_a_wrong_event() -> None:
    """The message names the event, and nothing is appended."""
    shop = kit()
    with pytest.raises(RequestError, match=r"stream sales: events\[1\]: Expected `int`"):
        shop.append(sales, [1, "two"])  # type: ignore[misc]
    assert shop.atoms(sales) == []


@pytest.mark.parametrize("events", [1, "tea", b"tea"])
def test_append_takes_a_list(events: Any) -> None:
    """A single event is no atom; a text is not an atom of letters."""
    with pytest.raises(RequestError, match=r"are no list; an atom of one event is \[event\]"):
        kit().append(sales, events)


def test_append_to_an_unknown_stream() -> None:
    """The message suggests similar names."""
    with pytest.raises(RequestError, match="did you mean sales"):
        kit().append("sale", [1])


def test_append_to_a_workflow() -> None:
    """Only the workflow publishes on its stream."""
    with pytest.raises(RequestError, match="revenues takes no appends"):
        kit().append("revenues", [1])


def test_append_happens_once() -> None:
    """A second append with the same id has no effect."""
    shop = kit()
    for _ in range(2):
        shop.runtime.append("sales", [1], request_id="a")
    assert shop.atoms("revenues") == [[1]]


def test_an_append_that_is_too_large_publishes_nothing() -> None:
    """The limit of a transaction's output holds for appends, too."""
    app = App("shop", flow("revenue", sales).task(Revenue).sink("revenues"))
    runtime = LocalRuntime(app, limits=Limits(output_bytes=20))
    assert runtime.append("sales", range(15)).error is None
    assert runtime.append("sales", range(30)).error == "limit-exceeded"
    assert len(runtime.streams["sales"]) == 1
