"""The box office sells each seat once, keeps all money, and lets holds expire."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.boxoffice import app
from examples.boxoffice.customer import Customer, Ticket
from examples.boxoffice.show import HOLD, Show
from penstock import Aborted
from penstock.testing import Kit

PRICE = Decimal("12.50")
STARTS = datetime(2026, 1, 2, 20, tzinfo=UTC)
SEATS = ["A1", "A2", "A3"]
NAMES = ["ann", "bob", "cy"]
CREDIT = Decimal(30)


@pytest.fixture
def kit() -> Kit:
    return opened()


def opened() -> Kit:
    """Return a kit with a show of three seats and three customers who can pay for two each."""
    kit = Kit(app)
    kit.call.Show.create("hamlet", title="Hamlet", starts=STARTS, price=PRICE, seats=SEATS)
    for name in NAMES:
        kit.call.Customer.create(name, credit=CREDIT)
    return kit


def test_customer_holds_and_buys(kit: Kit) -> None:
    """A hold closes seats to others, and a purchase turns all of them into tickets."""
    hamlet, ann, bob = Show("hamlet"), Customer("ann"), Customer("bob")
    assert kit.call(Show.hold, hamlet, ann, ["A1", "A3"]) == kit.clock.now + HOLD
    assert kit.call(Show.free, hamlet, bob) == ["A2"]
    with pytest.raises(Aborted, match="SeatTaken: hamlet: A3") as refused:
        kit.call(Show.hold, hamlet, bob, ["A2", "A3"])
    assert refused.value.code == "seat-taken"
    assert kit.call(Show.free, hamlet, ann) == SEATS
    tickets = kit.call(Show.buy, hamlet, ann)
    assert kit.call(Show.free, hamlet) == ["A2"]
    assert kit.entity("Customer", "ann") == {
        "name": "ann",
        "credit": CREDIT - 2 * PRICE,
        "tickets": [ticket.ticket_id for ticket in tickets],
    }


def test_buyer_without_credit_gets_no_seat(kit: Kit) -> None:
    """A purchase that cannot be paid changes nothing; the hold stays."""
    hamlet, cy = Show("hamlet"), Customer("cy")
    kit.call(Show.hold, hamlet, cy, SEATS)
    before = kit.digest()
    with pytest.raises(Aborted, match=r"cy: 30 left, 37.50 wanted") as refused:
        kit.call(Show.buy, hamlet, cy)
    assert refused.value.code == "not-enough-credit"
    assert kit.digest() == before
    kit.call(Customer.pay_in, cy, Decimal("7.50"))
    assert len(kit.call(Show.buy, hamlet, cy)) == 3


def test_hold_expires(kit: Kit) -> None:
    """After ten minutes a hold has no effect, and its seats cannot be bought."""
    hamlet = Show("hamlet")
    kit.call(Show.hold, hamlet, Customer("ann"), SEATS)
    kit.clock.advance(HOLD)
    with pytest.raises(Aborted, match="TooLate: ann holds no seat"):
        kit.call(Show.buy, hamlet, Customer("ann"))
    kit.call(Show.hold, hamlet, Customer("bob"), ["A1"])
    kit.clock.set(STARTS)
    with pytest.raises(Aborted, match="TooLate: Hamlet started"):
        kit.call(Show.hold, hamlet, Customer("cy"), ["A2"])


def test_ticket_is_passed_on_and_given_back(kit: Kit) -> None:
    """The price goes to the ticket's owner of the moment, and the seat is for sale again."""
    hamlet = Show("hamlet")
    kit.call(Show.hold, hamlet, Customer("ann"), ["A2"])
    (ticket,) = kit.call(Show.buy, hamlet, Customer("ann"))
    kit.call(Ticket.pass_to, ticket, Customer("bob"))
    assert kit.call(Show.give_back, hamlet, "A2") == PRICE
    assert kit.entities("Ticket") == {}
    credit = {name: row["credit"] for name, row in kit.entities("Customer").items()}
    assert credit == {"ann": CREDIT - PRICE, "bob": CREDIT + PRICE, "cy": CREDIT}
    assert kit.call(Show.free, hamlet) == SEATS
    with pytest.raises(Aborted, match="A2 is not sold"):
        kit.call(Show.give_back, hamlet, "A2")


STEPS = st.one_of(
    st.tuples(st.just("hold"), st.sampled_from(NAMES), st.lists(st.sampled_from(SEATS))),
    st.tuples(st.just("buy"), st.sampled_from(NAMES)),
    st.tuples(st.just("give back"), st.sampled_from(SEATS)),
    st.tuples(st.just("wait"), st.integers(0, 15)),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_no_seat_is_sold_twice_and_no_money_is_lost(steps: list[tuple[Any, ...]]) -> None:
    """After any requests, tickets and seats agree, and credit plus sales equal the money that was paid in."""
    kit = opened()
    hamlet = kit.call.Show("hamlet")
    for step in steps:
        try:
            match step:
                case "hold", name, seats:
                    hamlet.hold(Customer(name), seats)
                case "buy", name:
                    hamlet.buy(Customer(name))
                case "give back", seat:
                    hamlet.give_back(seat)
                case "wait", minutes:
                    kit.clock.advance(timedelta(minutes=minutes))
                case _:
                    raise AssertionError(step)
        except Aborted:
            continue
    show = kit.entity("Show", "hamlet")
    tickets, customers = kit.entities("Ticket"), kit.entities("Customer")
    assert show is not None
    assert {row["seat"]: key for key, row in tickets.items()} == show["sold"]
    assert not show["held"].keys() & show["sold"].keys()
    owned = {key: name for name, row in customers.items() for key in row["tickets"]}
    assert owned == {key: row["owner"] for key, row in tickets.items()}
    paid = sum((row["paid"] for row in tickets.values()), Decimal(0))
    assert sum(row["credit"] for row in customers.values()) + paid == len(NAMES) * CREDIT
