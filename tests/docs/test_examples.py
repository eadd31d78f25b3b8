"""Every example runs, and does the steps of its text."""

import ast
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from examples import bank, shop
from examples.bank.account import Overdrawn
from examples.talk import annotated, initialised
from penstock import Aborted, App, NoSuchEntity
from penstock.process.loading import load_app
from penstock.testing import Kit
from tests.checkout import TOP

EXAMPLES = TOP / "examples"
FOLDERS = sorted(path.name for path in EXAMPLES.iterdir() if (path / "__init__.py").exists())


def reference(app: App, name: str, key: str) -> Any:
    return app.entities[name].cls(key)


@pytest.mark.parametrize("folder", FOLDERS)
def test_example_loads_and_tells_its_story(folder: str) -> None:
    """Each example's folder is an application of that name, and opens with its subject."""
    assert load_app(str(EXAMPLES / folder)).name == folder
    text = (EXAMPLES / folder / "__init__.py").read_text()
    assert text.startswith('"""')


@pytest.mark.parametrize("style", [annotated, initialised])
def test_talk_buys_an_item(style: ModuleType) -> None:
    """In both styles, a user with credit gets items in stock, and nothing else changes."""
    kit = Kit(style.app)
    kit.call.Item.create("i1", price=1)
    kit.call.User.create("ann")
    item = style.Item("i1")
    with pytest.raises(Aborted, match=r"OutOfStock: Item\('i1'\)") as caught:
        kit.call.User("ann").buy_item(1, item)
    assert isinstance(caught.value.__cause__, style.OutOfStock)
    assert kit.entity("Item", "i1") == {"item_id": "i1", "price": 1, "stock": 0}
    kit.call.Item("i1").update_stock(5)
    assert kit.call.User("ann").buy_item(2, item) is False
    assert kit.call.User("ann").buy_item(1, item) is True
    assert kit.entity("Item", "i1") == {"item_id": "i1", "price": 1, "stock": 4}
    assert kit.entity("User", "ann") == {"username": "ann", "balance": 0}


def test_talk_is_one_application_in_both_styles() -> None:
    """The same requests leave the same state in both styles."""
    digests = set()
    for style in [annotated, initialised]:
        kit = Kit(style.app)
        kit.call.Item.create("i1", price=1)
        kit.call.User.create("ann")
        kit.call.Item("i1").update_stock(2)
        kit.call.User("ann").buy_item(1, style.Item("i1"))
        digests.add(kit.digest())
    assert len(digests) == 1


@pytest.fixture
def kit() -> Kit:
    """A shop of three items, two users who can pay five each, and an order of two items."""
    kit = Kit(shop.app)
    kit.call.init_items(3, 3, 2)
    kit.call.init_users(2, 5)
    kit.call.Order.create("o1", user_id=reference(shop.app, "User", "1"))
    for item in "12":
        kit.call.Order("o1").addItem(reference(shop.app, "Item", item), 1)
    return kit


def test_shop_checks_out_once(kit: Kit) -> None:
    """A checkout moves stock and money; a second one of the paid order charges nothing."""
    assert kit.call.Order("o1").checkout() == "Checkout successful"
    after = kit.digest()
    assert [one["stock"] for one in kit.entities("Item").values()] == [3, 2, 2]
    assert kit.entity("User", "1") == {"user_id": "1", "credit": 1}
    assert kit.call.Order("o1").checkout() == "Checkout successful"
    assert kit.digest() == after


def test_shop_refuses_whole(kit: Kit) -> None:
    """Without stock or credit nothing changes, also after earlier steps of the checkout."""
    kit.call.Order("o1").addItem(reference(shop.app, "Item", "1"), 1)
    before = kit.digest()
    with pytest.raises(Aborted, match="1: 5 credit, 6 wanted"):
        kit.call.Order("o1").checkout()
    assert kit.digest() == before
    kit.call.User("1").add_funds(100)
    kit.call.Item("2").subtract(3)
    before = kit.digest()
    with pytest.raises(Aborted, match="2: 0 in stock, 1 wanted"):
        kit.call.Order("o1").checkout()
    assert kit.digest() == before


def test_shop_names_what_is_unknown(kit: Kit) -> None:
    """An unknown item, user or order is named; an order may be made before its user."""
    kit.call.Order.create("o2", user_id=reference(shop.app, "User", "later"))
    with pytest.raises(NoSuchEntity, match="Item 'nope'"):
        kit.call.Order("o2").addItem(reference(shop.app, "Item", "nope"), 1)
    with pytest.raises(NoSuchEntity, match="User 'later'"):
        kit.call.Order("o2").checkout()
    with pytest.raises(NoSuchEntity, match="Order 'o3'"):
        kit.call.Order("o3").checkout()


def test_shop_is_filled_in_bulk() -> None:
    """Orders made in bulk have a known user and two known items each, and can be checked out."""
    kit = Kit(shop.app)
    kit.call.init_items(10, 100, 3)
    kit.call.init_users(5, 1000)
    kit.call.init_orders(20, 10, 5, 3)
    orders = kit.entities("Order")
    assert sorted(orders, key=int) == [str(number) for number in range(20)]
    for order in orders.values():
        assert order["user_id"] in kit.entities("User")
        assert [quantity for _, quantity in order["items"]] == [1, 1]
        assert {item for item, _ in order["items"]} <= kit.entities("Item").keys()
        assert (order["total_cost"], order["paid"]) == (6, False)
        assert kit.call.Order(order["order_id"]).checkout() == "Checkout successful"
    assert len({(order["user_id"], *order["items"]) for order in orders.values()}) > 10
    assert sum(one["stock"] for one in kit.entities("Item").values()) == 1000 - 40
    assert sum(one["credit"] for one in kit.entities("User").values()) == 5000 - 20 * 6


def test_shop_is_filled_anew() -> None:
    """Filling the shop a second time replaces its content."""
    kit = Kit(shop.app)
    for stock in (1, 7):
        kit.call.init_items(2, stock, 3)
        assert [one["stock"] for one in kit.entities("Item").values()] == [stock, stock]


def test_shop_takes_sixty_lines() -> None:
    """The three services and their routes are at most 60 lines of code, imports not counted."""
    count = 0
    for file in ("stock.py", "payment.py", "order.py"):
        text = (Path(shop.__file__).parent / file).read_text()
        told: set[int] = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import | ast.ImportFrom) or (
                isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            ):
                told.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        lines = enumerate(text.splitlines(), 1)
        count += sum(bool(line.strip()) and number not in told for number, line in lines)
    assert count <= 60


def account(name: str) -> Any:
    return reference(bank.app, "Account", name)


def balances(kit: Kit) -> dict[str, int]:
    return {key: one["balance"] for key, one in kit.entities("Account").items()}


def test_bank_pays_all_three_accounts_or_none() -> None:
    """A payment reaches destination and fees together, or the source keeps everything."""
    kit = Kit(bank.app)
    kit.call.Account.create("source", balance=100, overdraft_limit=50)
    kit.call.Account.create("destination")
    kit.call.Account.create("fees")
    pay = kit.call.Account("source").pay
    assert pay(account("destination"), 120, account("fees"), 5) == -25
    assert balances(kit) == {"source": -25, "destination": 120, "fees": 5}
    with pytest.raises(Aborted, match="Overdrawn: source: -49 left, 5 wanted") as caught:
        pay(account("destination"), 24, account("fees"), 5)
    assert isinstance(caught.value.__cause__, Overdrawn)
    with pytest.raises(Aborted, match="NotAnAmount: -1"):
        pay(account("destination"), -1, account("fees"), 5)
    with pytest.raises(NoSuchEntity):
        pay(account("destination"), 1, account("nowhere"), 1)
    assert balances(kit) == {"source": -25, "destination": 120, "fees": 5}


def test_bank_pays_once_for_one_request_id() -> None:
    """A payment sent again under its request id gets the first answer and moves nothing."""
    kit = Kit(bank.app)
    kit.call.init_accounts(0, 3, 100)
    pay = kit.call.Account("0").pay
    first = pay(account("1"), 10, account("2"), 1, request_id="payment-1")
    assert pay(account("1"), 10, account("2"), 1, request_id="payment-1") == first == 89
    assert balances(kit) == {"0": 89, "1": 110, "2": 101}


def test_bank_transfers() -> None:
    """A transfer keeps the sum of all balances, also to oneself."""
    kit = Kit(bank.app)
    kit.call.init_accounts(0, 2, 100)
    assert kit.call.Account("0").transfer(account("1"), 30) == 70
    assert kit.call.Account("0").transfer(account("0"), 70) == 0
    assert balances(kit) == {"0": 70, "1": 130}
