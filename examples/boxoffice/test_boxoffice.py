"""The box office without Spark: holds expire, seats are sold once, and money is paid back."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from penstock import Aborted
from penstock.testing import Kit

from . import app
from .customer import Customer, Ticket
from .show import HOLD, Show

PRICE = Decimal("12.50")
STARTS = datetime(2026, 1, 2, 20, tzinfo=UTC)
SEATS = ["A1", "A2", "A3"]
CREDIT = Decimal(30)


@pytest.fixture
def kit() -> Kit:
    """Give a kit with a show of three seats and three customers who can pay for two each."""
    kit = Kit(app)
    kit.call.Show.create("hamlet", title="Hamlet", starts=STARTS, price=PRICE, seats=SEATS)
    for name in ("ann", "bob", "cy"):
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
