"""The examples with streams, in a kit: the newsroom, the shopping cart, and the bank with an audit."""

from typing import Any

import pytest

from examples import cart, newsroom
from examples.bank.account import Account
from examples.bank.audit import WATCHED, Finding, audited, findings, payments
from examples.cart.analytics import Report, reports
from examples.cart.carts import Action, actions
from examples.cart.inventory import Put, puts
from examples.cart.orders import Order, orders
from examples.newsroom.letters import Digest, Letter, digests, letters
from examples.newsroom.stories import Story
from examples.newsroom.subscriptions import Subscription, subscriptions
from penstock import Aborted
from penstock.testing import Kit


def flat(atoms: list[list[Any]]) -> list[Any]:
    return [event for atom in atoms for event in atom]


@pytest.fixture
def shop() -> Kit:
    """The shopping cart with two pieces of i1 and one piece of i2."""
    kit = Kit(cart.app)
    kit.append(puts, [Put("i1", 3), Put("i1", 3), Put("i2", 5)])
    return kit


def test_carts_get_no_more_than_the_inventory_has(shop: Kit) -> None:
    """Three users get the three pieces, the fourth user gets none, and the orders have the prices."""
    shop.append(actions, [Action("U1", "i1"), Action("U2", "i2")])
    shop.append(actions, [Action("U3", "i1"), Action("U4", "i2")])
    shop.append(actions, [Action(f"U{number}") for number in range(1, 5)])
    assert flat(shop.atoms(orders)) == [
        Order("U4", [], 0),  # it has no price to wait for
        Order("U1", ["i1"], 3),
        Order("U2", ["i2"], 5),
        Order("U3", ["i1"], 3),
    ]
    assert [shop.task("inventory.Inventory", item)["pieces"] for item in ("i1", "i2")] == [0, 0]
    assert shop.atoms(reports)[-1] == [Report(11, {"i1": 2, "i2": 1})]


def test_a_checkout_waits_for_its_cart(shop: Kit) -> None:
    """A checkout in the atom of the last piece has this piece."""
    shop.append(actions, [Action("A", "i1"), Action("A")])
    assert flat(shop.atoms(orders)) == [Order("A", ["i1"], 3)]


@pytest.fixture
def press() -> Kit:
    """A newsroom with three stories; ann reads both topics, bob reads sports."""
    kit = Kit(newsroom.app)
    for number, topic in enumerate(["sports", "arts", "sports"]):
        kit.call(Story.create, f"s{number}", topic=topic, title=f"title {number}")
    kit.append(
        subscriptions,
        [
            Subscription("bob", "sports"),
            Subscription("ann", "sports"),
            Subscription("ann", "arts"),
        ],
    )
    return kit


def test_an_issue_is_one_letter_for_reader_and_topic(press: Kit) -> None:
    """The titles of a topic are together, and the next issue does not repeat them."""
    press.call.publish_issue([Story("s0"), Story("s1"), Story("s2")])
    arts, sports = Digest("arts", ["title 1"]), Digest("sports", ["title 0", "title 2"])
    assert press.atoms(digests) == [[arts, sports]]
    assert flat(press.atoms(letters)) == [
        Letter("ann", arts),
        Letter("ann", sports),
        Letter("bob", sports),
    ]
    press.call(Story.create, "s3", topic="arts", title="title 3")
    press.append(subscriptions, [Subscription("ann", "arts", is_active=False)])
    press.call.publish_issue([Story("s3")])
    assert press.atoms(digests)[1:] == [[Digest("arts", ["title 3"])]]
    assert len(flat(press.atoms(letters))) == 3


def test_an_issue_is_published_whole_or_not(press: Kit) -> None:
    """An issue with a story that is published already sends no letter."""
    with pytest.raises(Aborted, match="title 0") as caught:
        press.call.publish_issue([Story("s1"), Story("s0"), Story("s0")])
    assert caught.value.code == "already-published"
    assert press.atoms(digests) == []
    assert press.call(Story.publish, Story("s1")) is None


@pytest.fixture
def bank() -> Kit:
    """A bank with an audit and three accounts."""
    kit = Kit(audited)
    kit.call.init_accounts(0, 3, 2 * WATCHED)
    return kit


def pay(kit: Kit, amount: int) -> int:
    left: int = kit.call.pay(Account("0"), Account("1"), amount, Account("2"), 5)
    return left


def test_the_audit_finds_an_account_once(bank: Kit) -> None:
    """It is found with the payment that reaches the sum."""
    assert pay(bank, WATCHED - 1) == WATCHED + 1 - 5
    assert flat(bank.atoms(findings)) == []
    pay(bank, 1)
    pay(bank, 1)
    assert flat(bank.atoms(findings)) == [Finding("0", WATCHED)]
    assert bank.task("audit.Audit", "0") == {"paid": WATCHED + 1, "fees": 15}


def test_the_audit_sees_no_refused_payment(bank: Kit) -> None:
    """A payment that is undone is no event."""
    with pytest.raises(Aborted, match="Overdrawn"):
        pay(bank, 3 * WATCHED)
    assert bank.atoms(payments) == []
