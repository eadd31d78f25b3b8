"""The example market: the shop as three applications, with one transaction across them."""

import pytest

from examples import shop
from examples.market import orders, payment, stock
from examples.shop.order import Order
from penstock import Aborted
from penstock.dataflow.analysis.analyze import analyze_app
from penstock.dataflow.mermaid import plan_mermaid
from penstock.dataflow.text import plan_text
from penstock.testing import Kit


def filled(kit: Kit) -> Kit:
    """Return a kit with two items, a user and an order."""
    for item in ("tea", "cup"):
        kit.call.Item.create(item, price=3, stock=2)
    kit.call.User.create("ada", credit=10)
    kit.call.Order.create("o1", user_id=kit.runtime.app.entities["User"].of_text("ada"))
    return kit


@pytest.fixture
def market() -> Kit:
    """Return the three applications."""
    return filled(Kit(stock.app, payment.app, orders.app))


def test_a_checkout_spans_three_applications(market: Kit) -> None:
    """The stock, the credit and the order change together, or not at all."""
    tea = market.runtime.app.entities["Item"].of_text("tea")
    market.call.Order("o1").addItem(tea, 2)
    assert market.call(orders.Order.checkout, orders.Order("o1")) == "Checkout successful"
    assert market.entity("Item", "tea") == {"item_id": "tea", "price": 3, "stock": 0}
    assert market.entity("User", "ada") == {"user_id": "ada", "credit": 4}
    before = market.digest()
    market.call.Order.create("o2", user_id=payment.User("ada"))
    market.call.Order("o2").addItem(tea, 1)
    with pytest.raises(Aborted, match="tea: 0 in stock, 1 wanted"):
        market.call.Order("o2").checkout()
    assert market.entities("Order")["o2"]["paid"] is False
    market.call.Order("o2").delete()
    assert market.digest() == before


def test_the_market_stores_what_the_shop_stores(market: Kit) -> None:
    """One application and three applications with the same handlers have the same bytes."""
    kits = market, filled(Kit(shop.app))
    for kit in kits:
        tea = kit.runtime.app.entities["Item"].of_text("tea")
        kit.call.Order("o1").addItem(tea, 1)
        kit.call.Order("o1").checkout()
    assert kits[0].runtime.state == kits[1].runtime.state
    assert Order.__name__ in kits[0].runtime.app.shapes
    assert kits[0].runtime.app.shapes == kits[1].runtime.app.shapes


def test_the_graph_is_grouped_by_application(market: Kit) -> None:
    """One graph has the calls across applications; text and flowchart show each application as a group."""
    plan = analyze_app(market.runtime.app)
    assert [part.name for part in plan.applications] == ["stock", "payment", "orders"]
    assert plan.applications[2].operators == ("Order", "init_orders")
    lines = plan_text(plan).splitlines()
    heads = [line for line in lines if line.startswith(("application", "entity"))]
    assert [head.split()[1] for head in heads] == [
        *("stock", "Item"),
        *("payment", "User"),
        *("orders", "Order"),
    ]
    assert any("calls    Item.subtract *" in line for line in lines)
    assert plan_mermaid(plan).count("subgraph") == 3
