"""The box office sells each seat once, keeps all money, and lets holds expire."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from examples.boxoffice import app
from examples.boxoffice.customer import Customer
from penstock import Aborted
from penstock.testing import Kit

PRICE = Decimal("12.50")
STARTS = datetime(2026, 1, 2, 20, tzinfo=UTC)
SEATS = ["A1", "A2", "A3"]
NAMES = ["ann", "bob", "cy"]
CREDIT = Decimal(30)


def opened() -> Kit:
    """Return a kit with a show of three seats and three customers who can pay for two each."""
    kit = Kit(app)
    kit.call.Show.create("hamlet", title="Hamlet", starts=STARTS, price=PRICE, seats=SEATS)
    for name in NAMES:
        kit.call.Customer.create(name, credit=CREDIT)
    return kit


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
