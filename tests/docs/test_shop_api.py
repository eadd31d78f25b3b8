"""The challenge's HTTP contract, line by line, as a client that knows nothing of Penstock sees it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.checkout import SHOP
from tests.gateway_thread import RunningGateway

TEXT = "text/plain; charset=utf-8"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with (
        RunningGateway(SHOP, tmp_path_factory.mktemp("shop")) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
    ):
        yield client


def post(shop: httpx.Client, path: str) -> httpx.Response:
    return shop.post(path)


def made(shop: httpx.Client, path: str, name: str) -> str:
    answer = post(shop, path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json().keys() == {name}
    return str(answer.json()[name])


def told(answer: httpx.Response) -> str:
    assert (answer.status_code, answer.headers["content-type"]) == (200, TEXT)
    return answer.text


def test_stock_answers_as_agreed(shop: httpx.Client) -> None:
    """Items are made with a price and no stock; stock goes up, down, and never below 0."""
    item = made(shop, "/stock/item/create/5", "item_id")
    assert shop.get(f"/stock/find/{item}").json() == {"stock": 0, "price": 5}
    assert told(post(shop, f"/stock/add/{item}/7")) == f"Item: {item} stock updated to: 7"
    assert told(post(shop, f"/stock/subtract/{item}/3")) == f"Item: {item} stock updated to: 4"
    assert post(shop, f"/stock/subtract/{item}/5").status_code == 400
    assert shop.get(f"/stock/find/{item}").json() == {"stock": 4, "price": 5}


def test_payment_answers_as_agreed(shop: httpx.Client) -> None:
    """Users are made without credit; credit goes up, down, and never below 0."""
    user = made(shop, "/payment/create_user", "user_id")
    assert shop.get(f"/payment/find_user/{user}").json() == {"user_id": user, "credit": 0}
    added = post(shop, f"/payment/add_funds/{user}/9")
    assert told(added) == f"User: {user} credit updated to: 9"
    paid = post(shop, f"/payment/pay/{user}/4")
    assert told(paid) == f"User: {user} credit updated to: 5"
    assert post(shop, f"/payment/pay/{user}/6").status_code == 400
    assert shop.get(f"/payment/find_user/{user}").json() == {"user_id": user, "credit": 5}


def test_order_is_filled_and_checked_out_once(shop: httpx.Client) -> None:
    """An order adds up its items; a second checkout answers 200 and charges nothing."""
    item = made(shop, "/stock/item/create/5", "item_id")
    post(shop, f"/stock/add/{item}/10")
    user = made(shop, "/payment/create_user", "user_id")
    post(shop, f"/payment/add_funds/{user}/100")
    order = made(shop, f"/orders/create/{user}", "order_id")
    for total in (10, 20):
        added = told(post(shop, f"/orders/addItem/{order}/{item}/2"))
        assert added == f"Item: {item} added to: {order} price updated to: {total}"
    for _ in range(2):
        assert told(post(shop, f"/orders/checkout/{order}")) == "Checkout successful"
        assert shop.get(f"/orders/find/{order}").json() == {
            "order_id": order,
            "paid": True,
            "items": [[item, 2], [item, 2]],
            "user_id": user,
            "total_cost": 20,
        }
        assert shop.get(f"/stock/find/{item}").json()["stock"] == 6
        assert shop.get(f"/payment/find_user/{user}").json()["credit"] == 80


@pytest.mark.parametrize("lacking", ["stock", "credit", "user"])
def test_refused_checkout_changes_nothing(shop: httpx.Client, lacking: str) -> None:
    """Without stock, credit or the user, 400, and neither stock, credit nor order is another."""
    plenty, scarce = (made(shop, "/stock/item/create/5", "item_id") for _ in range(2))
    post(shop, f"/stock/add/{plenty}/10")
    post(shop, f"/stock/add/{scarce}/{0 if lacking == 'stock' else 10}")
    user = made(shop, "/payment/create_user", "user_id")
    post(shop, f"/payment/add_funds/{user}/{9 if lacking == 'credit' else 10}")
    buyer = "nobody" if lacking == "user" else user
    order = made(shop, f"/orders/create/{buyer}", "order_id")
    for item in (plenty, scarce):
        post(shop, f"/orders/addItem/{order}/{item}/1")
    paths = [f"/stock/find/{plenty}", f"/stock/find/{scarce}", f"/orders/find/{order}"]
    paths += [f"/payment/find_user/{user}"]
    before = [shop.get(path).json() for path in paths]
    assert post(shop, f"/orders/checkout/{order}").status_code == 400
    assert [shop.get(path).json() for path in paths] == before


UNKNOWN = [
    ("GET", "/stock/find/nope"),
    ("POST", "/stock/add/nope/1"),
    ("POST", "/stock/subtract/nope/1"),
    ("GET", "/payment/find_user/nope"),
    ("POST", "/payment/add_funds/nope/1"),
    ("POST", "/payment/pay/nope/1"),
    ("POST", "/orders/addItem/nope/nope/1"),
    ("GET", "/orders/find/nope"),
    ("POST", "/orders/checkout/nope"),
]


@pytest.mark.parametrize(("verb", "path"), UNKNOWN)
def test_unknown_is_400(shop: httpx.Client, verb: str, path: str) -> None:
    """Every request for a missing entity is answered with 400."""
    assert shop.request(verb, path).status_code == 400


def test_unknown_item_is_not_added(shop: httpx.Client) -> None:
    """An order takes no item that is not there."""
    order = made(shop, "/orders/create/later", "order_id")
    assert post(shop, f"/orders/addItem/{order}/nope/1").status_code == 400
    assert shop.get(f"/orders/find/{order}").json()["items"] == []


def test_bulk_loading_can_be_done_again(shop: httpx.Client) -> None:
    """The three bulk paths create 0 to n-1, in one request each, and replace earlier entities."""
    for stock in (50, 60):
        loaded = [
            post(shop, f"/stock/batch_init/200/{stock}/3").json(),
            post(shop, "/payment/batch_init/200/1000").json(),
            post(shop, "/orders/batch_init/200/200/200/3").json(),
        ]
        assert loaded == [
            {"msg": "Batch init for stock successful"},
            {"msg": "Batch init for users successful"},
            {"msg": "Batch init for orders successful"},
        ]
        assert shop.get("/stock/find/199").json() == {"stock": stock, "price": 3}
        order = shop.get("/orders/find/0").json()
        assert (order["paid"], order["total_cost"]) == (False, 6)
        assert [quantity for _, quantity in order["items"]] == [1, 1]
        assert post(shop, "/orders/checkout/0").status_code == 200


def test_every_gateway_shows_what_any_has_answered(tmp_path: Path) -> None:
    """A GET at another gateway sees the write whose answer its client has."""
    with (
        RunningGateway(SHOP, tmp_path) as one,
        RunningGateway(SHOP, tmp_path, drives=False) as other,
        httpx.Client(base_url=one.url, timeout=60) as here,
        httpx.Client(base_url=other.url, timeout=60) as there,
    ):
        item = here.post("/stock/item/create/1").json()["item_id"]
        for stock in range(1, 30):
            here.post(f"/stock/add/{item}/1")
            assert there.get(f"/stock/find/{item}").json()["stock"] == stock
