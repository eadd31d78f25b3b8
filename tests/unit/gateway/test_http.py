"""The gateway over HTTP: the guarantees of each answer, with everything real but Spark."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from penstock import Client
from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.principal import granted
from penstock.process.config import GatewayConfig
from tests.checkout import SHOP
from tests.gateway_thread import RunningGateway

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a shop that runs."""
    settings = GatewayConfig(body_bytes_max=4_096, cors_origins="https://shop.example")
    with (
        RunningGateway(SHOP, tmp_path_factory.mktemp("shop"), settings) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
    ):
        yield client


def code(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])


def create(shop: httpx.Client, key: str) -> None:
    answer = shop.post(f"/call/Item/{key}/create", json={"price": 3, "stock": 10})
    assert answer.status_code == 200, answer.text


def test_answer_names_epoch_and_request(shop: httpx.Client) -> None:
    """A call answers the bare value; its epoch and its request id are headers."""
    create(shop, "named")
    answer = shop.post("/call/Item/named/add", json=[5], headers={"Idempotency-Key": "add-1"})
    assert (answer.status_code, answer.json()) == (200, "Item: named stock updated to: 15")
    assert answer.headers["penstock-request-id"] == "add-1"
    assert int(answer.headers["penstock-epoch"]) >= 1


def test_same_id_gives_the_same_answer(shop: httpx.Client) -> None:
    """A request that is sent again takes effect once, and answers as before."""
    create(shop, "once")
    answers = [
        shop.post("/call/Item/once/add", json={"amount": 1}, headers={"Idempotency-Key": "once-1"})
        for _ in range(3)
    ]
    assert {one.text for one in answers} == {'"Item: once stock updated to: 11"'}
    assert len({one.headers["penstock-epoch"] for one in answers}) == 1


def test_same_id_with_another_body_is_refused(shop: httpx.Client) -> None:
    """An id always stands for one request."""
    create(shop, "other")
    headers = {"Idempotency-Key": "other-1"}
    shop.post("/call/Item/other/add", json=[1], headers=headers)
    answer = shop.post("/call/Item/other/add", json=[2], headers=headers)
    assert (answer.status_code, code(answer)) == (409, "request-conflict")


def test_conflict_takes_no_other_request_with_it(shop: httpx.Client) -> None:
    """Requests that share one append with a refused one are appended all the same."""
    create(shop, "shared")
    sent = shop.post("/call/Item/shared/add", json=[1], headers={"Idempotency-Key": "shared-1"})
    again = shop.post("/call/Item/shared/add", json=[7], headers={"Idempotency-Key": "shared-1"})
    after = shop.post("/call/Item/shared/add", json=[1])
    assert [one.status_code for one in (sent, again, after)] == [200, 409, 200]
    assert shop.get("/entities/Item/shared").json()["stock"] == 12


def test_refusal_of_the_application_changes_nothing(shop: httpx.Client) -> None:
    """A handler that raises is answered with 400 and its message, and all its changes are undone."""
    create(shop, "refused")
    answer = shop.post("/call/Item/refused/subtract", json=[11])
    assert (answer.status_code, code(answer)) == (400, "aborted")
    assert "11 wanted" in answer.json()["error"]["message"]
    assert shop.get("/entities/Item/refused").json()["stock"] == 10


STATUSES = [
    ("POST", "/call/Item/nope/add", [1], 404, "no-such-entity"),
    ("POST", "/call/Itme/a/add", [1], 400, "request"),
    ("POST", "/call/Item/a/ad", [1], 400, "request"),
    ("POST", "/call/Item/a/add", ["x"], 400, "request"),
    ("POST", "/call/Item/a/add", {"amuont": 1}, 400, "request"),
    ("POST", "/call/Item/a/add", 1, 400, "request"),
    ("POST", "/call/nope", [], 400, "request"),
    ("GET", "/call/Item/a/add", None, 405, "method-not-allowed"),
    ("GET", "/entities/Item/nope", None, 404, "no-such-entity"),
    ("GET", "/nowhere", None, 404, "not-found"),
    ("POST", "/stock/add/nope/1", None, 400, "no-such-entity"),
    ("POST", "/stock/add/nope/x", None, 400, "request"),
    ("GET", "/stock/find/nope", None, 400, "no-such-entity"),
    ("POST", "/sql", {"query": "SELECT 1"}, 503, "view-unavailable"),
    ("GET", "/entities/Item/changes?from=0", None, 503, "view-unavailable"),
    ("GET", "/entities/Item/changes?from=-1", None, 400, "request"),
    ("GET", "/entities/Item/changes?from=0&to=9999999999999999999", None, 400, "request"),
    ("GET", "/entities/Itm/changes?from=0", None, 400, "request"),
    ("GET", "/entities/Item/changes", None, 404, "no-such-entity"),
]


@pytest.mark.parametrize(("verb", "path", "body", "status", "wanted"), STATUSES)
def test_errors_have_their_status(
    shop: httpx.Client, verb: str, path: str, body: object, status: int, wanted: str
) -> None:
    """Errors have one shape, with a code that does not change."""
    answer = shop.request(verb, path, json=body) if body is not None else shop.request(verb, path)
    assert (answer.status_code, code(answer)) == (status, wanted)


def test_long_key_is_refused(tmp_path: Path) -> None:
    """`gateway.key_bytes_max` bounds an entity's key and a request id, in bytes of UTF-8."""
    settings = GatewayConfig(key_bytes_max=16)
    with (
        RunningGateway(SHOP, tmp_path, settings, drives=False, reads=False) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
    ):
        reads = {"k" * 16: 404, "k" * 17: 400, "\u00e9" * 8: 404, "\u00e9" * 9: 400}
        for key, status in reads.items():
            assert client.get(f"/entities/Item/{key}").status_code == status, key
        for key, of_entity, of_request in (("k" * 16, 202, 202), ("k" * 17, 413, 400)):
            assert client.post(f"/send/Item/{key}/add", json=[1]).status_code == of_entity
            headers = {"Idempotency-Key": key}
            told = client.post("/send/Item/a/add", json=[1], headers=headers)
            assert told.status_code == of_request


def test_large_body_is_refused(shop: httpx.Client) -> None:
    """A body beyond the limit gets 413, whether its length is said before or not."""
    body = b'["' + b"x" * 5_000 + b'"]'
    announced = shop.post("/call/Item/a/add", content=body)
    streamed = shop.post("/call/Item/a/add", content=iter([body[:100], body[100:]]))
    assert [one.status_code for one in (announced, streamed)] == [413, 413]


def test_route_takes_arguments_from_query_and_body(shop: httpx.Client) -> None:
    """Arguments that the path does not hold come from the query string or a JSON body, by name."""
    made = shop.post("/stock/item/create/7?stock=4").json()["item_id"]
    assert shop.get(f"/stock/find/{made}").json() == {"stock": 4, "price": 7}
    made = shop.post("/stock/item/create/7", json={"stock": 5}).json()["item_id"]
    assert shop.get(f"/stock/find/{made}").json() == {"stock": 5, "price": 7}
    twice = shop.post("/stock/item/create/7?price=8")
    assert (twice.status_code, code(twice)) == (400, "request")


def test_sent_request_is_answered_later(shop: httpx.Client) -> None:
    """`/send` answers at once; its reply is found by the id, waiting for it if wanted."""
    create(shop, "sent")
    answer = shop.post("/send/Item/sent/add", json=[2])
    assert answer.status_code == 202
    told = shop.get(answer.headers["location"], params={"wait": 10}).json()
    assert (told["status"], told["value"]) == ("answered", "Item: sent stock updated to: 12")
    assert told["request_id"] == answer.json()["request_id"]


def test_delayed_request_waits_until_it_is_due(shop: httpx.Client) -> None:
    """`?delay=` makes a request durable that runs once, and not before its time."""
    create(shop, "late")
    far = shop.post("/send/Item/late/add", params={"delay": 600}, json=[3])
    scheduled = shop.get(far.headers["location"]).json()
    assert scheduled["status"] == "scheduled"
    due = datetime.fromisoformat(scheduled["due"])
    assert due.timestamp() == pytest.approx(scheduled["due_us"] / 1e6)
    began = time.time()
    answer = shop.post("/send/Item/late/add", params={"delay": 0.5}, json=[2])
    place = answer.headers["location"]
    while (told := shop.get(place).json())["status"] != "answered":
        assert time.time() - began < DEADLINE_S
    assert time.time() - began >= 0.5
    assert told["value"] == "Item: late stock updated to: 12"


def test_scheduled_request_is_cancelled_once(shop: httpx.Client) -> None:
    """A cancelled request never runs; its id stays taken, and its result is the error `cancelled`."""
    create(shop, "never")
    later, headers = "/send/Item/never/add?delay=3600", {"Idempotency-Key": "never-2"}
    place = shop.post(later, json=[2], headers=headers).headers["location"]
    first, second = shop.delete(place), shop.delete(place)
    assert (first.status_code, first.json()) == (second.status_code, second.json())
    assert (first.json()["request_id"], first.json()["status"]) == ("never-2", "cancelled")
    again = shop.post("/call/Item/never/add", json=[2], headers=headers)  # waits for the epoch
    assert (again.status_code, code(again)) == (409, "cancelled")
    assert shop.post(later, json=[2], headers=headers).status_code == 202
    told = shop.get(place).json()
    assert (told["status"], told["error"]["code"]) == ("answered", "cancelled")
    other = shop.post("/call/Item/never/add", json=[3], headers=headers)
    assert (other.status_code, code(other)) == (409, "request-conflict")
    assert shop.get("/entities/Item/never").json()["stock"] == 10


def test_cancelled_request_is_cancelled_before_its_epoch(tmp_path: Path) -> None:
    """Its status and its error are known as soon as the cancellation is durable, also without a driver."""
    settings = GatewayConfig(
        reply_timeout_ms=600_000
    )  # an answer at once needs less than the client has
    with (
        RunningGateway(SHOP, tmp_path, settings, drives=False, reads=False) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as shop,
    ):
        place = shop.post("/send/Item/never/add?delay=3600", json=[2]).headers["location"]
        lsn = shop.delete(place).json()["lsn"]
        told = shop.get(place).json()
        assert (told["status"], told["epoch"], told["lsn"]) == ("cancelled", None, lsn)
        assert told["error"]["code"] == "cancelled"
        assert "before it was due" in told["error"]["message"]
        assert shop.get(f"{place}?wait=600").json() == told
        with Client(gateway.url) as client:
            assert client.pending(told["request_id"]).done()


def test_request_in_the_log_is_too_late_to_cancel(shop: httpx.Client) -> None:
    """A request that runs or has run is refused, and the answer names the place of its result."""
    create(shop, "ran")
    headers = {"Idempotency-Key": "ran-1"}
    shop.post("/call/Item/ran/add", json=[1], headers=headers)
    refused = shop.delete("/requests/ran-1")
    assert (refused.status_code, code(refused)) == (409, "too-late")
    assert refused.headers["location"] == "/requests/ran-1"
    assert shop.get(refused.headers["location"]).json()["status"] == "answered"
    unknown = shop.delete("/requests/nobody")
    assert (unknown.status_code, code(unknown)) == (404, "not-found")


def test_unknown_request_is_not_found(shop: httpx.Client) -> None:
    """An id that was never used is not found."""
    assert shop.get("/requests/nobody").status_code == 404


def test_min_epoch_waits_or_says_how_far_it_is(shop: httpx.Client) -> None:
    """A read that wants an epoch gets it or a later one, or 504 when it does not come."""
    create(shop, "epochs")
    newest = int(shop.post("/call/Item/epochs/add", json=[1]).headers["penstock-epoch"])
    there = shop.get("/entities/Item/epochs", headers={"Penstock-Min-Epoch": str(newest)})
    assert int(there.headers["penstock-epoch"]) >= newest
    ahead = shop.get(f"/entities/Item/epochs?min_epoch={newest + 9}&timeout=0.05")
    assert (ahead.status_code, code(ahead)) == (504, "timed-out")
    wrong = shop.get("/entities/Item/epochs?min_epoch=soon")
    assert (wrong.status_code, code(wrong)) == (400, "request")


def test_health_needs_nothing(shop: httpx.Client) -> None:
    """A gateway that answers is alive; one that takes requests is ready; both name what they rest on."""
    assert shop.get("/healthz").json() == {"status": "alive"}
    ready = shop.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    assert ready.json()["driver"] == "absent"
    assert [one.split()[1] for one in ready.json()["missing"]] == ["driver", "view"]


def test_metrics_count_what_was_answered(shop: httpx.Client) -> None:
    """The metrics page counts the requests of this test."""
    create(shop, "counted")
    text = shop.get("/metrics").text
    assert 'penstock_requests_total{kind="call",status="2xx"}' in text
    assert "penstock_request_seconds_bucket" in text
    assert "penstock_epoch " in text


def test_load_of_the_last_hour_has_the_newest_requests(shop: httpx.Client) -> None:
    """A request that was answered just now is in the last point, with its latency."""

    def requests() -> int:
        points = shop.get("/metrics/recent").json()["points"]
        return sum(one["requests"] for one in points)

    before = requests()
    create(shop, "recent")
    assert requests() > before
    answer = shop.get("/metrics/recent?seconds=60").json()
    assert answer["step_s"] == 5
    assert answer["points"][-1]["lag"] >= 0
    assert answer["points"][-1].keys() >= {"processed", "requests", "p50_ms"}
    assert any(one["p50_ms"] is not None for one in answer["points"])
    assert shop.get("/metrics/recent?seconds=soon").status_code == 400


def test_metrics_do_not_grow_with_what_is_asked(shop: httpx.Client) -> None:
    """Keys, ids, unknown paths and verbs make no new label values."""

    def series(number: int) -> set[str]:
        create(shop, f"label-{number}")
        shop.get(f"/entities/Item/label-{number}")
        shop.get(f"/requests/label-{number}")
        shop.get(f"/nothing/label-{number}")
        shop.request(f"VERB{number}", "/healthz")
        text = shop.get("/metrics").text
        return {line.rpartition(" ")[0] for line in text.splitlines()}

    series(0)  # afterwards each kind of route has been asked for, also the metrics themselves
    first = series(1)
    assert series(2) == first == series(3)
    assert not any("label-" in line for line in first)


def test_named_origin_may_call_from_a_browser(shop: httpx.Client) -> None:
    """A page of a configured origin is admitted, and its preflight request is answered."""
    headers = {"Origin": "https://shop.example", "Access-Control-Request-Method": "POST"}
    before = shop.options("/call/Item/a/add", headers=headers)
    assert before.headers["access-control-allow-origin"] == "https://shop.example"
    stranger = shop.get("/readyz", headers={"Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in stranger.headers


def test_page_of_strangers_is_refused(shop: httpx.Client) -> None:
    """A foreign page can neither call nor read, although no key is asked for."""
    create(shop, "private")
    image = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
    for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}, image):
        for answer in (
            shop.post("/call/Item/private/add", json=[1], headers=headers),
            shop.post("/stock/add/private/1", headers=headers),
            shop.get("/entities/Item/private", headers=headers),
            shop.get("/metrics", headers=headers),
        ):
            assert (answer.status_code, code(answer)) == (403, "forbidden")
    link = image | {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert shop.get("/openapi.json", headers=link).status_code == 200
    assert shop.get("/entities/Item/private").json()["stock"] == 10


def test_key_opens_what_its_scopes_name(tmp_path: Path) -> None:
    """With keys, each caller may do what its key allows, and read replies to its own calls."""
    store = KeyStore(tmp_path)
    secrets = {
        scope: store.add(f"key-{number}", granted([scope]), None, datetime.now(UTC))[1]
        for number, scope in enumerate(("call:Item", "read:Item", "call:User"))
    }

    def headers(scope: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {secrets[scope]}"}

    with (
        RunningGateway(SHOP, tmp_path) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
    ):
        made = client.post("/stock/item/create/3", headers=headers("call:Item"))
        assert made.status_code == 200
        place = f"/requests/{made.headers['penstock-request-id']}"
        item = made.json()["item_id"]
        statuses = {
            "nobody": client.post(f"/stock/add/{item}/1").status_code,
            "reader calls": client.post(
                f"/stock/add/{item}/1", headers=headers("read:Item")
            ).status_code,
            "reader reads": client.get(
                f"/entities/Item/{item}", headers=headers("read:Item")
            ).status_code,
            "reader's feed": client.get(
                "/entities/Item/changes?from=0", headers=headers("read:Item")
            ).status_code,
            "caller's feed": client.get(
                "/entities/Item/changes?from=0", headers=headers("call:Item")
            ).status_code,
            "caller asks": client.get(place, headers=headers("call:Item")).status_code,
            "stranger asks": client.get(place, headers=headers("call:User")).status_code,
            "anybody's health": client.get("/healthz").status_code,
        }
    assert statuses == {
        "nobody": 401,
        "reader calls": 403,
        "reader reads": 200,
        "reader's feed": 503,  # no view runs here, and it came as far as that
        "caller's feed": 403,
        "caller asks": 200,
        "stranger asks": 404,
        "anybody's health": 200,
    }


def test_waiting_is_bounded(tmp_path: Path) -> None:
    """Without a driver a call gets 504 in its time, and the request is processed afterwards."""
    settings = GatewayConfig(reply_timeout_ms=200, lag_max=1)
    with (
        RunningGateway(SHOP, tmp_path, settings, drives=False, reads=False) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
    ):
        path, body = "/call/Item/a/create", {"price": 1}
        first = client.post(path, json=body, headers={"Idempotency-Key": "slow"})
        assert (first.status_code, code(first)) == (504, "timed-out")
        client.post("/send/Item/a/add", json=[1])
        refused = client.post("/send/Item/a/add", json=[1])
        assert (refused.status_code, code(refused)) == (429, "overloaded")
        assert refused.headers["retry-after"] == "1"
        place = "/requests/slow"
        assert client.get(place).json()["status"] == "pending"
    with (
        RunningGateway(SHOP, tmp_path, reads=False) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
    ):
        again = client.post(path, json=body, headers={"Idempotency-Key": "slow"})
        assert (again.status_code, again.json()) == (200, "a")
