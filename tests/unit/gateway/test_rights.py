"""Which scope opens which path: a gateway with one key for each scope is asked at every path."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import httpx
import pytest

from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.principal import granted
from penstock.gateway.handlers.served_handlers import KINDS
from penstock.gateway.route import routes_of
from tests.gateway_thread import RunningGateway

APP = """\
from penstock import App, entity, internal, key, principal, publish, readonly, route, stream, transactional


@entity
class Lamp:
    lamp_id: str = key()
    is_on: bool = False

    def press(self) -> bool:
        self.is_on = not self.is_on
        return self.is_on

    @internal
    def burn(self) -> None:
        self.is_on = False

    @readonly
    @route("GET /lamps/{lamp_id}/light")
    def shines(self) -> bool:
        return self.is_on


@transactional
def tick() -> int:
    return 1


@readonly
@transactional
def sender() -> str:
    return principal().id


rays = stream("rays", int)
app = App("lamps", Lamp, tick, sender, rays, publish(Lamp))
"""
NOBODY = ""
SCOPES = (NOBODY, "admin", "watch", "sql", "call", "read", "append", "follow")
ANYBODY = frozenset(SCOPES)
KNOWN = ANYBODY - {NOBODY}

RIGHTS = {
    "GET /healthz": ANYBODY,
    "GET /readyz": ANYBODY,
    "GET /openapi.json": KNOWN,
    "GET /docs": ANYBODY,
    "POST /call/Lamp/a/create": {"call"},
    "POST /call/tick": {"call"},
    "POST /call/Lamp/a/burn": set(),
    "POST /call/Lamp/a/delete": {"call"},
    "POST /send/Lamp/a/press": {"call"},
    "POST /send/tick": {"call"},
    "POST /streams/rays": {"append"},
    "POST /send/streams/rays": {"append"},
    "GET /streams": KNOWN,
    "POST /streams/-/tickets": KNOWN,
    "GET /streams/rays": {"follow"},
    "GET /tables/Lamp": {"follow"},
    "POST /read": {"call"},
    "GET /lamps/a/light": {"call"},
    "GET /entities/Lamp/a": {"read"},
    "GET /entities/Lamp?is_on=true": {"read"},
    "GET /entities/Lamp/changes?from=0": {"read"},
    "GET /entities/Lamp/a/changes": {"read"},
    "GET /export/Lamp": {"read"},
    "GET /export/streams/Lamp": {"follow"},
    "GET /entities/Nothing/a/history": {"sql"},
    "GET /requests/unknown": KNOWN,
    "DELETE /requests/unknown": KNOWN,
    "GET /requests/a%20b/trace": {"sql"},
    "POST /requests/unknown/retry": {"admin"},
    "POST /requests/unknown/discard": {"admin"},
    "POST /sql": {"sql"},
    "GET /search/nothing": {"sql"},
    "POST /at": {"sql"},
    "POST /at/nothing": {"sql"},
    "DELETE /at/nothing": {"sql"},
    "GET /metrics": {"admin", "watch"},
    "GET /metrics/recent": {"admin", "watch"},
    "GET /deployments": {"admin", "watch"},
    "GET /deployments/7": {"admin", "watch"},
    "POST /deployments": {"admin"},
    "GET /partitions": {"admin", "watch"},
    "POST /partitions": {"admin"},
    "GET /schedules": {"admin", "watch"},
    "POST /schedules": {"admin"},
    "GET /erasures": {"admin", "watch"},
    "POST /erasures": {"admin"},
    "GET /flow": {"admin", "watch"},
    "POST /flow": {"admin"},
    "GET /failed": {"admin", "watch"},
    "POST /failed": {"admin"},
    "GET /console/": ANYBODY,
    "GET /console/main.js": ANYBODY,
    "GET /console/api/status": {"admin", "watch"},
    "GET /console/api/epochs": {"admin", "watch"},
    "GET /console/api/plan": {"admin", "watch"},
    "GET /console/api/surface": KNOWN,
    "GET /console/api/scheduled": {"admin", "watch"},
}
BODIES = {
    "POST /at": {"questions": [{"sql": "SELECT 1"}]},
    "POST /read": {"calls": [{"entity": "Lamp", "key": "a", "method": "shines"}]},
    "POST /streams/rays": [1],
    "POST /send/streams/rays": [1],
}


@pytest.fixture(scope="module")
def lamps(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[httpx.Client, dict[str, str]]]:
    folder = tmp_path_factory.mktemp("lamps")
    source, data = folder / "lamps.py", folder / "data"
    source.write_text(APP)
    store, now = KeyStore(data), datetime.now(UTC)
    data.mkdir()
    keys = {each: store.add(f"k-{each}", granted([each]), None, now)[1] for each in SCOPES if each}
    with (
        RunningGateway(str(source), data) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
    ):
        yield client, keys


@pytest.mark.parametrize("path", RIGHTS)
def test_path_is_open_to_its_scopes(lamps: tuple[httpx.Client, dict[str, str]], path: str) -> None:
    """A path refuses each principal that lacks its scope, and nobody else."""
    client, keys = lamps
    verb, url = path.split(" ")
    opened = set()
    for scope in SCOPES:
        headers = {"Authorization": f"Bearer {keys[scope]}"} if scope else {}
        body = BODIES.get(path, []) if verb == "POST" else None
        answer = client.request(verb, url, json=body, headers=headers)
        if answer.status_code not in (401, 403):
            opened.add(scope)
    assert opened == RIGHTS[path]


def test_a_handler_knows_its_principal(lamps: tuple[httpx.Client, dict[str, str]]) -> None:
    """`penstock.principal()` is the name of the key, also in a read that no log has."""
    client, keys = lamps
    answer = client.post("/call/sender", headers={"X-API-Key": keys["call"]})
    assert (answer.status_code, answer.json()) == (200, "k-call")


def test_watch_reaches_pages_and_no_order(lamps: tuple[httpx.Client, dict[str, str]]) -> None:
    """A person of the support sees the pages of an operator, and each request that could change something is refused."""
    client, keys = lamps
    headers = {"X-API-Key": keys["watch"]}
    paths = client.get("/openapi.json", headers=headers).json()["paths"]
    orders = [
        (verb.upper(), re.sub(r"\{\w+\}", "a", path))
        for path, operations in paths.items()
        for verb in operations
        if verb not in ("get", "head")
    ]
    assert len(orders) > 20
    # A caller may cancel its own requests; without calls there is nothing to refuse.
    open_to_all = {("DELETE", "/requests/a"), ("POST", "/read"), ("POST", "/streams/-/tickets")}
    answers = {
        order: client.request(*order, json=[], headers=headers).status_code
        for order in orders
        if order not in open_to_all
    }
    assert {order for order, status in answers.items() if status != 403} == set()
    pages = ("/console/api/status", "/metrics", "/flow", "/partitions", "/deployments", "/erasures")
    assert [client.get(page, headers=headers).status_code for page in pages] == [200] * len(pages)


def test_console_lists_the_public_surface(lamps: tuple[httpx.Client, dict[str, str]]) -> None:
    """The list has the scopes that decide here, and no internal handler."""
    client, keys = lamps
    answer = client.get("/console/api/surface", headers={"X-API-Key": keys["call"]})
    rows = {row.pop("request"): row for row in answer.json()["requests"]}
    assert rows["POST /call/Lamp/{key}/delete"] == {
        "scope": "call:Lamp.delete",
        "asks_right": False,
        "remark": "call:Lamp does not cover it",
    }
    assert rows["GET /lamps/{lamp_id}/light"]["scope"] == "call:Lamp.shines"
    assert [request for request in rows if "burn" in request] == []


def test_every_declared_route_is_asked() -> None:
    """The table has a path for each route that a handler declares."""
    declared = {
        f"{route.verb} {route.path}" for handlers in KINDS for route, _ in routes_of(handlers)
    }
    asked = {path.partition("?")[0] for path in RIGHTS}
    assert [
        each
        for each in declared
        if not any(re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", each), path) for path in asked)
    ] == []
