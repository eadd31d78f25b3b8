"""Subscriptions to one entity, and the tickets with which a page in a browser opens them."""

import asyncio
import json
import threading
from collections.abc import Iterator, Set
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from penstock.base.ids import EntityKey, Epoch
from penstock.errors import Unauthenticated
from penstock.gateway.auth.authentication import Authenticator, OriginPolicy
from penstock.gateway.auth.keys import KeyRing, KeyStore
from penstock.gateway.auth.principal import ANONYMOUS, granted
from penstock.gateway.auth.tickets import OPENS_S
from penstock.gateway.auth.watched_file import WatchedFile
from penstock.gateway.connections import Connections
from penstock.gateway.handlers.subscriptions import SubscriptionHandler, _Subscription
from penstock.process.config import GatewayConfig
from penstock.state import newest
from tests.gateway_thread import RunningGateway

APP = """\
from penstock import App, Entity, Principal, key, stream


class Note(Entity):
    name: str = key()
    owner: str
    text: str = ""

    def allows(self, principal: Principal) -> bool:
        return principal.id == self.owner

    def give(self, owner: str) -> None:
        self.owner = owner


class Lamp(Entity):
    name: str = key()
    level: int = 0

    def turn(self, level: int) -> None:
        self.level = level


app = App("desk", Note, Lamp, stream("rays", int))
"""
SCOPES = {"ada": ["call", "read", "follow"], "bob": ["read:Note"], "eve": ["call", "read"]}
EVENTS = {"Accept": "text/event-stream"}


class Desk:
    """The gateway, and the keys of its callers."""

    def __init__(self, http: httpx.Client, keys: dict[str, str], store: KeyStore) -> None:
        self.http = http
        self.keys = keys
        self.store = store

    def call(self, path: str, *arguments: Any, **named: Any) -> None:
        answer = self.http.post(
            f"/call/{path}", json=named or list(arguments), headers=self.key("ada")
        )
        assert answer.status_code == 200, answer.text

    def key(self, who: str) -> dict[str, str]:
        return {"X-API-Key": self.keys[who]}

    def ticket(self, who: str, path: str) -> Any:
        answer = self.http.post("/streams/-/tickets", json={"path": path}, headers=self.key(who))
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, path: str, headers: dict[str, str]) -> tuple[int, str]:
        answer = self.http.get(path, headers=EVENTS | headers)
        return answer.status_code, answer.json()["error"]["message"]

    @contextmanager
    def events(self, path: str, headers: dict[str, str]) -> Iterator[Iterator[dict[str, str]]]:
        """Yield the events of a stream, each with its fields by name."""
        with self.http.stream("GET", path, headers=EVENTS | headers) as answer:
            if answer.status_code != 200:
                raise AssertionError(answer.read())
            yield _events(answer.iter_lines())


def _events(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    event: dict[str, str] = {}
    for line in lines:
        name, _, text = line.partition(": ")
        if name:
            event[name] = text
        elif "data" in event:
            yield event
            event = {}
        else:
            event = {}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("desk")
    (folder / "desk.py").write_text(APP)
    data, now = folder / "data", datetime.now(UTC)
    data.mkdir()
    store = KeyStore(data)
    keys = {name: store.add(name, granted(each), None, now)[1] for name, each in SCOPES.items()}
    settings = GatewayConfig(connections_max=16)
    with (
        RunningGateway(str(folder / "desk.py"), data, settings) as gateway,
        httpx.Client(base_url=gateway.url, timeout=30) as http,
    ):
        yield Desk(http, keys, store)


@pytest.fixture(params=[300, -1], ids=["all rows", "changed rows"])
def looks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let looks read all rows, which is cheaper for a few subscribers, or the changed ones, as for many."""
    monkeypatch.setattr(newest, "_READS_PER_EPOCH", request.param)
    return f"{request.param}"


def test_a_subscriber_sees_each_state_after_the_one_before(desk: Desk, looks: str) -> None:
    """It begins with the present state, also of an entity that does not exist, and goes on to its deletion."""
    lamp = f"first{looks}"
    with desk.events(f"/entities/Lamp/{lamp}/changes", desk.key("ada")) as events:
        assert next(events)["data"] == "null"
        desk.call(f"Lamp/{lamp}/create", level=1)
        created = next(events)
        assert json.loads(created["data"]) == {"name": lamp, "level": 1}
        desk.call(f"Lamp/other{looks}/create")
        desk.call(f"Lamp/{lamp}/turn", 2)
        turned = next(events)
        assert json.loads(turned["data"]) == {"name": lamp, "level": 2}
        desk.call(f"Lamp/{lamp}/delete")
        deleted = next(events)
        assert deleted["data"] == "null"
        assert int(created["id"]) < int(turned["id"]) < int(deleted["id"])


def test_the_newest_state_follows_many_changes(desk: Desk, looks: str) -> None:
    """States in between may be left out, the last one is not, and none goes back."""
    desk.call(f"Lamp/fast{looks}/create")
    with desk.events(f"/entities/Lamp/fast{looks}/changes", desk.key("ada")) as events:
        for level in range(1, 21):
            desk.call(f"Lamp/fast{looks}/turn", level)
        levels = [json.loads(next(events)["data"])["level"]]
        while levels[-1] != 20:
            levels.append(json.loads(next(events)["data"])["level"])
        assert levels == sorted(set(levels))


class Looks:
    """Rows of entities, all the same, at an epoch."""

    def __init__(self) -> None:
        self.epoch, self.row = Epoch(1), b"dark"

    async def read_changed(
        self, keys: Set[EntityKey], _after: Epoch | None
    ) -> tuple[Epoch, dict[EntityKey, bytes | None]]:
        return self.epoch, dict.fromkeys(keys, self.row)


def test_a_state_between_two_looks_is_not_the_last() -> None:
    """A subscriber has read for itself that a lamp shines, and it is dark at both looks: the second one wakes the subscriber."""

    async def woken() -> list[bool]:
        looks, missing = Looks(), cast("Any", None)
        handler = SubscriptionHandler(
            missing, missing, cast("Any", looks), missing, Connections(most=16)
        )
        handler._following = asyncio.create_task(asyncio.sleep(60))  # this test looks itself
        subscription, seen = _Subscription(Epoch(0), b""), []
        with handler._joined(ANONYMOUS, EntityKey("Lamp/l1"), subscription):
            for epoch, shown in ((1, 0), (2, 0), (4, 3), (5, 3)):
                subscription.shown, looks.epoch = Epoch(shown), Epoch(epoch)
                await handler._look(handler._epoch)
                seen.append(subscription.wake.is_set())
                subscription.wake.clear()
        await handler.close()
        return seen

    assert asyncio.run(woken()) == [True, False, True, False]


def test_a_cut_is_continued(desk: Desk) -> None:
    """After a cut, the first event is the present state, unless the subscriber has the state of this epoch."""
    desk.call("Lamp/cut/create")
    path = "/entities/Lamp/cut/changes"
    with desk.events(path, desk.key("ada")) as events:
        seen = next(events)["id"]
    with desk.events(path, desk.key("ada") | {"Last-Event-ID": seen}) as events:
        desk.call("Lamp/cut/turn", 5)
        event = next(events)
        assert json.loads(event["data"])["level"] == 5
    desk.call("Lamp/cut/turn", 6)
    with desk.events(path, desk.key("ada") | {"Last-Event-ID": event["id"]}) as events:
        assert json.loads(next(events)["data"])["level"] == 6


def test_the_first_state_is_not_older_than_the_epoch_that_is_wanted(desk: Desk) -> None:
    """The gateway waits for the epoch of `Penstock-Min-Epoch`, which another gateway may have named."""
    path, ada = "/entities/Lamp/late/changes", desk.key("ada")
    read = desk.http.get("/entities/Lamp", headers=ada)
    wanted = int(read.headers["Penstock-Epoch"]) + 1
    writing = threading.Timer(0.2, lambda: desk.call("Lamp/late/create", level=4))
    writing.start()
    with desk.events(path, ada | {"Penstock-Min-Epoch": str(wanted)}) as events:
        first = next(events)
    writing.join()
    assert (int(first["id"]), json.loads(first["data"])["level"]) == (wanted, 4)


def test_the_right_per_row_is_asked_for_each_state(desk: Desk, looks: str) -> None:
    """The state that a caller may not see ends its subscription, and is not shown."""
    name = f"n{looks}"
    path, refusal = f"/entities/Note/{name}/changes", f"may not use Note '{name}'"
    desk.call(f"Note/{name}/create", owner="ada", text="milk")
    assert desk.refused(path, desk.key("bob")) == (403, f"bob {refusal}")
    with desk.events(path, desk.key("ada")) as events:
        assert json.loads(next(events)["data"])["text"] == "milk"
        desk.call(f"Note/{name}/give", "bob")
        last = next(events)
        assert last["event"] == "refused"
        error = json.loads(last["data"])["error"]
        assert (error["code"], error["message"]) == ("forbidden", f"ada {refusal}")
        assert next(events, None) is None
    with desk.events(path, desk.key("bob")) as events:
        assert json.loads(next(events)["data"])["owner"] == "bob"


@pytest.mark.parametrize(
    ("path", "headers", "status", "message"),
    [
        ("/entities/Lamp/x/changes", {"Accept": "*/*"}, 400, "the changes of one entity are"),
        ("/entities/Lamp/x/changes", {"Last-Event-ID": "-1"}, 400, "Last-Event-ID=-1 is not an"),
        ("/entities/Lamp/x/changes?from=1", {}, 400, "there is no field of the query string"),
        ("/entities/Nothing/x/changes", {}, 403, "bob lacks the scope read:Nothing"),
        ("/entities/Lamp/x/changes", {}, 403, "bob lacks the scope read:Lamp"),
    ],
)
def test_a_wrong_subscription_is_refused(
    desk: Desk, path: str, headers: dict[str, str], status: int, message: str
) -> None:
    """Each refusal comes as a status, before the stream."""
    who = "bob" if status == 403 else "ada"
    answered, text = desk.refused(path, desk.key(who) | headers)
    assert (answered, text[: len(message)]) == (status, message)


def test_one_caller_cannot_have_all_places(desk: Desk) -> None:
    """A principal has at most a quarter of the connections; another one still finds a place."""
    path = "/entities/Lamp/busy/changes"
    with ExitStack() as opened:
        streams = [opened.enter_context(desk.events(path, desk.key("eve"))) for _ in range(4)]
        assert [next(events)["data"] for events in streams] == ["null"] * 4
        status, message = desk.refused(path, desk.key("eve"))
        assert (status, message[:24]) == (429, "eve has 4 subscriptions ")
        with desk.events(path, desk.key("ada")) as events:
            assert next(events)["data"] == "null"


def test_a_ticket_opens_its_path_without_a_header(desk: Desk) -> None:
    """It has the rights of its asker; the query string belongs to the path, in any encoding."""
    desk.call("Note/ä b/create", owner="ada")
    asked = desk.ticket("ada", "/entities/Note/%C3%A4%20b/changes")
    assert asked["path"] == f"/entities/Note/%C3%A4%20b/changes?ticket={asked['ticket']}"
    assert 0 < (datetime.fromisoformat(asked["expires"]) - datetime.now(UTC)).seconds <= OPENS_S
    with desk.events(f"/entities/Note/%c3%a4%20b/changes?ticket={asked['ticket']}", {}) as events:
        assert json.loads(next(events)["data"])["owner"] == "ada"
    bobs = desk.ticket("bob", "/entities/Note/%C3%A4%20b/changes")
    assert desk.refused(bobs["path"], {}) == (403, "bob may not use Note 'ä b'")
    answer = desk.http.post("/streams/rays", json=[7], headers={"X-API-Key": desk.keys["ada"]})
    assert answer.status_code == 403  # ada follows, and does not append
    with desk.http.stream(
        "GET", desk.ticket("ada", "/streams/rays?from=earliest")["path"], headers=EVENTS
    ) as stream:
        assert stream.status_code == 200


def test_a_ticket_opens_nothing_else(desk: Desk) -> None:
    """Another path or query string, a changed ticket, and a second credential are refused, each with its reason."""
    ticket = desk.ticket("ada", "/streams/rays?from=0")["ticket"]
    other = "the ticket is for another path or another query string"
    wrong = "the ticket is not valid: its signature is not of this application"
    body, _, signature = ticket.partition(".")
    swapped = ("B" if body[20] == "A" else "A").join((body[:20], body[21:]))
    for path, message in {
        f"/entities/Lamp/l1/changes?ticket={ticket}": other,
        f"/streams/rays?from=1&ticket={ticket}": other,
        f"/streams/rays?ticket={ticket}": other,
        f"/streams/rays?from=0&ticket={swapped}.{signature}": wrong,
        f"/streams/rays?from=0&ticket={body}": wrong,
        "/streams/rays?from=0&ticket=": wrong,
        "/streams/rays?from=0&ticket=%F0%9F%8E%AB.%FF": wrong,
    }.items():
        assert desk.refused(path, {}) == (401, message)
    status, message = desk.refused(f"/streams/rays?from=0&ticket={ticket}", desk.key("ada"))
    assert (status, message) == (401, "send one credential: a ticket, or a header")
    assert desk.refused(f"/entities/Lamp/l1?ticket={ticket}", {})[0] == 401


@pytest.mark.parametrize(
    "path",
    ["/entities/Lamp/l1", "/streams", "/nothing", "streams/rays", "/streams/rays?ticket=a", ""],
)
def test_a_ticket_is_for_an_event_stream(desk: Desk, path: str) -> None:
    """No other path has tickets."""
    answer = desk.http.post("/streams/-/tickets", json={"path": path}, headers=desk.key("ada"))
    assert answer.status_code == 400
    assert "is not the path of an event stream" in answer.json()["error"]["message"]


class Keys(WatchedFile[KeyRing | None]):
    """Keys that a test exchanges."""

    def __init__(self, ring: list[KeyRing | None]) -> None:
        self._ring = ring

    def value(self) -> KeyRing | None:
        return self._ring[0]


def test_a_ticket_of_an_open_gateway_gives_nothing_after_the_first_key() -> None:
    """Without keys, everybody may follow; a ticket from that time is no credential."""
    ring: list[KeyRing | None] = [None]
    authenticator = Authenticator(Keys(ring), None, OriginPolicy([], None), secret=bytes(16))
    ticket, _ = authenticator.ticket([], b"/streams/rays", b"")
    scope: dict[str, Any] = {"headers": [], "method": "GET", "path": "/streams/rays"}
    scope["query_string"] = f"ticket={ticket}".encode()
    assert authenticator.follower(scope, opens=True) == ANONYMOUS
    ring[0] = KeyRing([])
    with pytest.raises(Unauthenticated, match="send a key or a token"):
        authenticator.follower(scope, opens=True)


def test_a_ticket_ends_in_time_and_with_its_key(desk: Desk, tmp_path: Path) -> None:
    """The time is for the opening; later, the key decides."""
    now_s = 1_000.0
    made, presented = KeyStore(tmp_path).add("kim", granted(["read"]), None, datetime.now(UTC))
    ring: list[KeyRing | None] = [KeyRing([made])]

    authenticator = Authenticator(Keys(ring), None, None, lambda: now_s, secret=bytes(16))
    headers = [(b"x-api-key", presented.encode())]
    ticket, until_s = authenticator.ticket(headers, b"/streams/rays", b"")
    scope: dict[str, Any] = {"headers": [], "method": "GET", "path": "/streams/rays"}
    scope["query_string"] = f"ticket={ticket}".encode()
    assert until_s == now_s + OPENS_S
    now_s = until_s - 1
    assert authenticator.follower(scope, opens=True).name == "kim"
    now_s = until_s
    with pytest.raises(Unauthenticated, match="the ticket has expired: it opens its stream for 60"):
        authenticator.follower(scope, opens=True)
    assert authenticator.follower(scope).name == "kim"
    ring[0] = KeyRing([])
    with pytest.raises(Unauthenticated, match="is not valid any more"):
        authenticator.follower(scope)
    stranger = Authenticator(Keys(ring), None, None, lambda: now_s, secret=bytes(17))
    with pytest.raises(Unauthenticated, match="its signature is not of this application"):
        stranger.follower(scope)
