"""Programs copy a published table over HTTP: rows first, then changes, resumed at any page, with everything real but Spark."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock import Client, Put, Removed
from penstock.base.ids import RequestId
from penstock.deployment.loading import load_app
from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.principal import granted
from penstock.log.api import Entry
from penstock.model.call import Call, encoded
from tests.differential.inline import Inline
from tests.gateway_thread import RunningGateway
from tests.streams.table_app import OpenOrder

SPEC = "tests.streams.table_app:shop"
Copy = dict[str, Any]


class Shop:
    """A shop whose epochs a driver in this process commits, and its gateway."""

    def __init__(self, data: Path) -> None:
        self.app = load_app(SPEC)
        self.driver = Inline(data, 2, SPEC, self.app.name, since=0, small_epoch=5)
        self.driver.driver.recover(self.app).result()
        self._number = 0

    def call(self, key: str, method: str, **arguments: object) -> None:
        """Process a call."""
        self._number += 1
        body, _ = encoded(self.app, Call("Order", key, method, (), arguments))
        self.driver.log.append([Entry(RequestId(f"c{self._number}"), body, b"", self._number)])
        self.driver.advance(int(self.driver.log.end()))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shop, httpx.Client]]:
    """A shop with orders o0 to o9 and a gateway."""
    data = tmp_path_factory.mktemp("shop") / "data"
    data.mkdir()
    shop = Shop(data)
    for number in range(10):
        shop.call(f"o{number}", "create", total=number)
    with (
        RunningGateway(SPEC, data, drives=False, reads=False) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
    ):
        yield shop, client
    shop.driver.close()


@pytest.fixture
def shop(opened: tuple[Shop, httpx.Client]) -> Shop:
    return opened[0]


@pytest.fixture
def client(opened: tuple[Shop, httpx.Client]) -> httpx.Client:
    return opened[1]


def apply(copy: Copy, page: dict[str, Any]) -> None:
    """Bring a copy to the next position."""
    for change in page["changes"]:
        if change["change"] == "put":
            copy[change["key"]] = change["row"]["total"]
        else:
            copy.pop(change["key"], None)


def page_of(client: httpx.Client, **fields: object) -> dict[str, Any]:
    answer = client.get("/tables/open_orders", params=fields)  # type: ignore[arg-type]
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def whole(client: httpx.Client, **fields: object) -> tuple[Copy, dict[str, Any]]:
    """Copy the table: return the copy, and its last page."""
    copy: Copy = {}
    page = page_of(client, **fields)
    apply(copy, page)
    while not page["complete"]:
        page = page_of(client, **(fields | {"after": page["position"]}))
        apply(copy, page)
    return copy, page


def test_rows_and_then_changes(shop: Shop, client: httpx.Client) -> None:
    """The copy is the table at the epoch of a page; a change comes once, also to a request that waits."""
    copy, page = whole(client)
    assert copy == {f"o{number}": number for number in range(10)}
    assert page["epoch"] == shop.driver.driver.epoch
    after = page_of(client, after=page["position"])
    assert (after["changes"], after["position"]) == ([], page["position"])
    number, _, mark = page["position"].partition("-")
    beyond = client.get("/tables/open_orders", params={"after": f"{int(number) + 1}-{mark}"})
    assert beyond.json()["error"]["code"] == "request"
    shop.call("o3", "ship")
    shop.call("o4", "add", more=10)
    page = page_of(client, after=page["position"], wait=20)
    apply(copy, page)
    assert copy == whole(client)[0]
    assert [change["change"] for change in page["changes"]] == ["removed", "put"]


@pytest.mark.parametrize("limit", [1, 3])
def test_changes_between_two_pages_are_not_lost(
    shop: Shop, client: httpx.Client, limit: int
) -> None:
    """Between two pages, rows change that the caller has, and rows that it does not have yet; new ones come, and some go."""
    copy: Copy = {}
    page = page_of(client, limit=limit)
    apply(copy, page)
    step = 0
    while not page["complete"]:
        if step < 3:
            shop.call("o0", "add", more=1)
            shop.call("o9", "add", more=1)
            shop.call(f"new-{limit}-{step}", "create", total=step)
            shop.call(f"new-{limit}-{step}", "ship")
            shop.call(f"a{limit}-{step}", "create", total=step)
        step += 1
        last = copy.get("o0", -1)
        page = page_of(client, limit=limit, after=page["position"])
        apply(copy, page)
        assert copy.get("o0", 99) >= last, "no row becomes older"
    assert copy == whole(client)[0]


def test_server_sent_events_resume_in_the_middle_of_the_rows(
    shop: Shop, client: httpx.Client
) -> None:
    """Each page is an event, whose id is the position; after a cut, the next response goes on there."""
    copy: Copy = {}
    last = ""
    for count in (2, 1_000):
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        with client.stream("GET", "/tables/open_orders?limit=2", headers=headers) as response:
            for line in response.iter_lines():
                if line.startswith("id: "):
                    last = line.removeprefix("id: ")
                if line.startswith("data: "):
                    page = json.loads(line.removeprefix("data: "))
                    assert page["position"] == last
                    apply(copy, page)
                    count -= 1
                    if not count or page["complete"]:
                        break
        shop.call("o0", "add", more=1)
    page = page_of(client, after=last)
    apply(copy, page)
    assert copy == whole(client)[0]


@pytest.mark.parametrize(
    ("fields", "code", "told"),
    [
        ({"after": "x"}, "request", "after=x is no position"),
        (
            {"after": "1-00000000"},
            "request",
            "is a position of another table, or of another journal",
        ),
        ({"after": "3-00000000~%ff"}, "request", "is no position"),
        ({"limit": "0"}, "request", "limit"),
        ({"from": "3"}, "request", "there is no field"),
    ],
)
def test_wrong_fields_are_refused(
    client: httpx.Client, fields: dict[str, str], code: str, told: str
) -> None:
    """The message names the field."""
    answer = client.get("/tables/open_orders", params=fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, code)
    assert told in error["message"]


def test_only_published_tables_are_tables(client: httpx.Client) -> None:
    """A stream or a class is none; a similar name is proposed."""
    answer = client.get("/tables/open_order")
    assert answer.status_code == 400
    assert "did you mean open_orders" in answer.json()["error"]["message"]


def test_the_document_has_the_table(client: httpx.Client) -> None:
    """The schema of the changes has the fields of the rows."""
    document = client.get("/openapi.json").json()
    operation = document["paths"]["/tables/open_orders"]["get"]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    text = json.dumps([schema, document["components"]["schemas"]])
    assert all(word in text for word in ("complete", "order_id", "removed"))


def test_forgotten_changes_name_the_remedy(
    shop: Shop, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A position behind which retention has removed changes is refused with `gone`."""
    from penstock.journal import atoms  # noqa: PLC0415

    def gone(self: object, stream: str, start: int) -> Iterator[Any]:
        if start < 5:
            raise atoms.gone(stream, start, 5)
        yield

    _, page = whole(client)
    _, _, mark = page["position"].partition("-")
    monkeypatch.setattr(atoms.AtomReader, "atoms", gone)
    answer = client.get("/tables/open_orders", params={"after": f"0-{mark}"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (410, "gone")
    assert "begin with the rows again, without `after`" in error["message"]


def test_a_key_needs_the_scope_of_the_stream(tmp_path: Path) -> None:
    """`follow:open_orders` allows the table, and no other right does."""
    data = tmp_path / "data"
    data.mkdir()
    Shop(data).driver.close()
    keys = KeyStore(data)
    now = datetime.now(UTC)
    good = keys.add("reader", granted(["follow:open_orders"]), None, now)[1]
    bad = keys.add("caller", granted(["call", "read"]), None, now)[1]
    with RunningGateway(SPEC, data, drives=False, reads=False) as gateway:
        for key, status in ((good, 200), (bad, 403)):
            headers = {"Authorization": f"Bearer {key}"}
            answer = httpx.get(f"{gateway.url}/tables/open_orders", headers=headers, timeout=60)
            assert answer.status_code == status, answer.text
            if status == 200:
                assert answer.json()["complete"]
                assert answer.json()["changes"] == []


def test_clients_keep_a_copy(shop: Shop, client: httpx.Client) -> None:
    """A client with the application gets `Put` and `Removed` with typed rows; it goes on at a position."""
    url = str(client.base_url)
    with Client(url, shop.app) as typed:
        copy: dict[str, OpenOrder] = {}
        for page in typed.table("open_orders", follow=False):
            for change in page.changes:
                if isinstance(change, Put):
                    copy[change.key] = change.row
                else:
                    assert isinstance(change, Removed)
                    del copy[change.key]
        assert page.is_complete
        assert {key: row.total for key, row in copy.items()} == whole(client)[0]
        shop.call("o0", "add", more=5)
        pages = typed.table("open_orders", page.position)
        assert [change.row.total for change in next(pages).changes] == [copy["o0"].total + 5]
        assert list(typed.table("open_orders", pages.position, follow=False)) == []
    with Client(url) as plain:
        changes = [
            each for page in plain.table("open_orders", follow=False) for each in page.changes
        ]
        assert {each["change"] for each in changes} == {"put"}
