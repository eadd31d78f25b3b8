"""The past in the console: what a request did, and what happened to an entity."""

from tests.browser.page import Page
from tests.browser.running import RunningConsole


def test_request_and_entity_tell_their_past(page: Page, shop: RunningConsole) -> None:
    """From a request one comes to its calls, from there to an entity, and back to its requests."""
    shop.call("Item/past/create", price=2, stock=9)
    shop.call("User/past/create", credit=50)
    shop.call("Order/past/create", user_id="past")
    shop.http.post("/call/Order/past/addItem", json=["past", 3])
    shop.http.post("/call/Order/past/checkout", headers={"Idempotency-Key": "past-checkout"})
    page.open("/requests/past-checkout")
    page.one('[data-status="answered"]')
    page.press("Trace: what it did")
    page.one('[data-call="Order/past.checkout()"] [data-call="Item/past.subtract(3)"]')
    page.one('[data-call="User/past.pay(6)"]')
    rows = page.rows("#trace")
    assert ["Item/past", "changed", "stock", "9", "6", ""] in rows
    page.press("Item/past")
    page.until('[data-attribute="stock"]', "6")
    page.press("Show its changes")
    page.one("#history table")
    changes = page.rows("#history")
    assert changes[0][2:] == ["past-checkout", "Order/past.checkout()", "stock", "9", "6"]
    page.press("past-checkout")
    page.one('[data-status="answered"]')
