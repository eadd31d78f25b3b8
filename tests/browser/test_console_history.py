"""The past in the console: the trace of a request, and the history of an entity."""

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
    calls = page.until("#calls", "User/past.pay(6)")
    assert "Item/past.subtract(3)" in calls
    assert "Order/past.checkout()" in calls
    page.press("Item/past")
    page.until('[data-attribute="stock"]', "6")
    page.press("History")
    changes = page.until("#history", "past-checkout")
    assert "Order/past.checkout()" in changes
    assert page.rows("#history")[0][-2:] == ["9", "6"]
    page.press("past-checkout")
    page.until("h1", "past-checkout")
    page.open("/entities/Order/past")
    page.press("History")
    changes = page.until("#history", "items[0]")
    assert "past-checkout" in changes
