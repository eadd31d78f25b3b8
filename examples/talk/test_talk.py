"""The user and the items of the talk without Spark, in both styles of writing them."""

from types import ModuleType

import pytest

from penstock import Aborted
from penstock.testing import Kit

from . import annotated, initialised


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
    digests: set[str] = set()
    for style in [annotated, initialised]:
        kit = Kit(style.app)
        kit.call.Item.create("i1", price=1)
        kit.call.User.create("ann")
        kit.call.Item("i1").update_stock(2)
        kit.call.User("ann").buy_item(1, style.Item("i1"))
        digests.add(kit.digest())
    assert len(digests) == 1
