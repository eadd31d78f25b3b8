"""Subscriptions of both clients to one entity, at a real gateway: states in order, over cuts, restarts, deployments and erasures."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock import AsyncClient, Client
from penstock.base.ids import Epoch
from penstock.client import states, transport
from penstock.client.states import EntityState, Subscription
from penstock.deployment.loading import load_app
from penstock.errors import (
    Forbidden,
    OperationalError,
    Overloaded,
    PenstockError,
    RequestError,
    Unauthenticated,
    Unreachable,
)
from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.principal import granted
from penstock.model.application import App
from penstock.process.config import GatewayConfig
from tests.cutter import Cutter
from tests.deployments import kept_imports, record, write_version
from tests.differential.persons import ADA, PERSONS, Persons
from tests.gateway_thread import HOST, RunningGateway
from tests.waiting import wait_for

__all__ = ["kept_imports"]

APP = """
    from decimal import Decimal
    from penstock import App, Entity, Principal, key

    class Jar(Entity):
        name: str = key()
        price: Decimal = Decimal(0)
        beside: "Jar | None" = None
        marks: dict[tuple[int, str], set[bytes]] = {}

        def set_price(self, price: Decimal) -> None:
            self.price = price
            self.marks = {(1, "a"): {b"x", bytes([255])}}
            self.beside = self

    class Note(Entity):
        name: str = key()
        owner: str

        def allows(self, principal: Principal) -> bool:
            return principal.id == self.owner

        def give(self, owner: str) -> None:
            self.owner = owner

    app = App("jars", Jar, Note)
"""
LATER = APP.replace("    def set_price", '    lid: str = "blue"\n\n        def set_price')
SCOPES = {"ada": ["call", "read"], "bob": ["read:Note"], "eve": ["read"]}


class Store:
    """An application whose gateway may be started again, and the keys of its callers."""

    def __init__(self, folder: Path, module: str) -> None:
        self.spec = write_version(folder / "1", module, APP)
        self.app: App = load_app(self.spec)
        self.data, now = folder / "data", datetime.now(UTC)
        self.data.mkdir()
        self.key_store = KeyStore(self.data)
        self.keys = {
            who: self.key_store.add(who, granted(scopes), None, now)[1]
            for who, scopes in SCOPES.items()
        }

    def client(self, url: str, who: str = "ada", **settings: Any) -> Client:
        return Client(url, self.app, key=self.keys[who], **settings)


@pytest.fixture(scope="module")
def _store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("jars"), "subscribed_jars")


@pytest.fixture(scope="module")
def served(_store: Store) -> Iterator[tuple[Store, RunningGateway]]:
    with RunningGateway(_store.spec, _store.data, GatewayConfig(connections_max=16)) as gateway:
        yield _store, gateway


def test_states_come_in_order_and_have_the_types_of_a_read(
    served: tuple[Store, RunningGateway],
) -> None:
    """From an entity that does not exist over its changes to its deletion; each copy is that of `get`."""
    store, gateway = served
    jar: Any = store.app.entity("Jar").cls
    with store.client(gateway.url) as client, closing(client.subscribe(jar("a"))) as following:
        first = next(following)
        assert first.entity is None
        client.Jar.create("a", price=Decimal("1.50"))
        created = next(following)
        client.Jar("a").set_price(Decimal("2.25"))
        changed = next(following)
        assert created.entity is not None
        assert created.entity.price == Decimal("1.50")
        assert changed.entity is not None
        assert vars(changed.entity) == vars(client.get(jar("a")))
        assert changed.entity.marks == {(1, "a"): {b"x", b"\xff"}}
        assert client.epoch >= changed.epoch
        with closing(client.subscribe("Jar", changed.entity)) as by_name:
            assert next(by_name).entity == client.get("Jar", "a")
        with Client(gateway.url, key=store.keys["ada"]) as plain:
            assert next(plain.subscribe("Jar", "a")).entity == plain.get("Jar", "a")
        client.Jar("a").delete()
        deleted = next(following)
        assert deleted.entity is None
        assert first.epoch < created.epoch < changed.epoch < deleted.epoch


def test_cut_connections_lose_no_state_and_repeat_none(
    served: tuple[Store, RunningGateway],
) -> None:
    """After a cut without a change nothing comes; after a cut with changes, the newest state."""
    store, gateway = served
    with (
        Cutter(gateway.config.gateway.port) as cutter,
        store.client(gateway.url) as writer,
        store.client(cutter.url) as client,
        closing(client.subscribe("Jar", "cut")) as following,
    ):
        assert next(following).entity is None
        writer.Jar.create("other to move the epoch on")
        cutter.cut()
        turning = threading.Timer(1.5, lambda: writer.Jar.create("cut", price=Decimal(1)))
        turning.start()
        created = next(following)  # and not None again
        assert (created.entity or {})["price"] == 1
        turning.join()
        cutter.cut()
        writer.Jar("cut").set_price(Decimal(2))
        writer.Jar("cut").set_price(Decimal(3))
        changed = next(following)
        assert (changed.entity or {})["price"] == 3
        assert changed.epoch > created.epoch
        assert cutter.connections >= 3


@pytest.mark.usefixtures("kept_imports")
def test_a_restart_and_a_deployment_go_on_in_one_loop(tmp_path: Path) -> None:
    """A change beside a restart is seen; the states have an attribute that a deployment adds, without a change."""
    store = Store(tmp_path, "jars_deployed")
    first = RunningGateway(store.spec, store.data)
    with store.client(first.url) as client, closing(client.subscribe("Jar", "a")) as following:
        with first:
            assert next(following).entity is None
            client.Jar.create("a", price=Decimal(1))
            assert (next(following).entity or {})["price"] == 1
            client.Jar("a").set_price(Decimal(2))  # nobody reads it before the restart
        second = RunningGateway(store.spec, store.data)
        second.config, second.url = replace(second.config, gateway=first.config.gateway), first.url
        with second:
            assert (next(following).entity or {})["price"] == 2
            client.Jar("a").set_price(Decimal(3))
            before = next(following).entity or {}
            assert (before["price"], "lid" in before) == (3, False)
            recorded = record(second, write_version(tmp_path / "2", "jars_deployed", LATER))
            wait_for(lambda: second.deployments.served == recorded, "the switch")
            assert next(following).entity == {**before, "lid": "blue"}


def test_an_erased_person_is_none(tmp_path: Path) -> None:
    """A subscriber hears of an erasure, and the subscription goes on with a later person of the same key."""
    persons = Persons(tmp_path / "data")
    persons.begin()
    with (
        RunningGateway(PERSONS, persons.folder, drives=False) as gateway,
        Client(gateway.url, persons.app) as client,
        closing(client.subscribe(persons.user("ada"))) as following,
    ):
        assert getattr(next(following).entity, "name", None) == "Countess Lovelace"
        persons.order(ADA)
        persons.run()
        assert next(following).entity is None
        persons.send("User", "ada", "create", name="Ada Byron")
        assert getattr(next(following).entity, "name", None) == "Ada Byron"
    persons.runtime.close()


def test_refusals_have_the_classes_of_other_methods(served: tuple[Store, RunningGateway]) -> None:
    """At the beginning and in the middle; a wrong class or key is refused before anything is sent."""
    store, gateway = served
    with store.client(gateway.url) as ada, store.client(gateway.url, "bob", retries=0) as bob:
        with pytest.raises(RequestError, match="Nothing"):
            ada.subscribe("Nothing", "x")
        with pytest.raises(RequestError, match="Jar"):
            ada.subscribe("Jar", 7)
        with pytest.raises(Forbidden, match="bob lacks the scope read:Jar"):
            next(bob.subscribe("Jar", "x"))
        ada.Note.create("n", owner="ada")
        with pytest.raises(Forbidden, match="bob may not use Note 'n'"):
            next(bob.subscribe("Note", "n"))
        following = ada.subscribe("Note", "n")
        assert (next(following).entity or {})["owner"] == "ada"
        ada.Note("n").give("bob")
        with pytest.raises(Forbidden, match="ada may not use Note 'n'"):
            next(following)
        with pytest.raises(StopIteration):
            next(following)


def test_a_revoked_key_ends_its_subscriptions(served: tuple[Store, RunningGateway]) -> None:
    """The next state after the revocation is not shown, and the error is that of any other call."""
    store, gateway = served

    def read_on() -> None:
        for price in range(1_000):
            ada.Jar("of eve").set_price(Decimal(price))
            next(following)

    with store.client(gateway.url) as ada, store.client(gateway.url, "eve") as eve:
        ada.Jar.create("of eve")
        following = eve.subscribe("Jar", "of eve")
        next(following)
        store.key_store.revoke("eve")
        with pytest.raises(Unauthenticated):
            read_on()


def test_a_caller_has_a_share_of_the_places(served: tuple[Store, RunningGateway]) -> None:
    """One beyond it is refused as an overload, and a closed one frees its place."""
    store, gateway = served
    with store.client(gateway.url, "bob", retries=0) as bob:
        many = [bob.subscribe("Note", "none") for _ in range(5)]
        assert [next(one).entity for one in many[:4]] == [None] * 4
        with pytest.raises(Overloaded, match="bob has 4 subscriptions"):
            next(many[4])
        many[0].close()
        wait_for(lambda: _begins(bob), "the free place of the closed one")


def _begins(client: Client) -> bool:
    try:
        with closing(client.subscribe("Note", "none")) as following:
            next(following)
    except Overloaded:
        return False
    return True


def test_a_loop_ends_with_break_and_with_its_client(served: tuple[Store, RunningGateway]) -> None:
    """`break` frees the connection at once; `close` of the client wakes a loop that waits in another thread."""
    store, gateway = served
    client = store.client(gateway.url)
    for state in client.subscribe("Jar", "end"):
        assert state.entity is None
        break
    assert client._pool._streams == {}
    seen: list[EntityState[Any]] = []
    thread = threading.Thread(target=lambda: seen.extend(client.subscribe("Jar", "end")))
    thread.start()
    wait_for(lambda: seen or client._pool._streams, "the connection")
    wait_for(lambda: client.epoch >= 0, "the first state")
    client.close()
    thread.join(60)
    assert not thread.is_alive()
    with pytest.raises(RuntimeError, match="this client is closed"):
        client.subscribe("Jar", "end")


def test_an_event_loop_follows_many_and_ends_cleanly(served: tuple[Store, RunningGateway]) -> None:
    """Subscriptions take no place of the calls; they end with `break`, with a cancelled task and with the client."""
    store, gateway = served

    async def follow() -> list[list[int]]:
        client = AsyncClient(gateway.url, store.app, key=store.keys["ada"], connections=1)
        levels: list[list[int]] = [[], [], []]

        async def one(place: int) -> None:
            async for state in client.subscribe("Jar", "many"):
                levels[place].append(-1 if state.entity is None else int(state.entity["price"]))
                if place == 0 and levels[0][-1] == 2:
                    break

        tasks = [asyncio.create_task(one(place)) for place in range(3)]
        while not all(levels):
            await asyncio.sleep(0.01)
        await client.Jar.create("many", price=Decimal(1))
        while not all(seen[-1] == 1 for seen in levels):
            await asyncio.sleep(0.01)
        await client.Jar("many").set_price(Decimal(2))
        while not all(seen[-1] == 2 for seen in levels):
            await asyncio.sleep(0.01)
        await tasks[0]
        tasks[1].cancel()
        await client.close()
        await asyncio.wait_for(tasks[2], 10)
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        return levels

    assert asyncio.run(follow()) == [[-1, 1, 2]] * 3


@contextmanager
def answering(*answers: bytes, then: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that gives one answer to each connection, and treats it with `then`; the last answer is given again and again."""
    listener = socket.create_server((HOST, 0))
    left, opened = list(answers), []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            opened.append(connection)
            connection.recv(65_536)
            connection.sendall(left.pop(0) if len(left) > 1 else left[0])
            then(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://{HOST}:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()
        for connection in opened:
            connection.close()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def test_a_silent_connection_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that is dead behind its connection is noticed by the heartbeats that do not come."""
    monkeypatch.setattr(transport, "SILENCE_S", 0.3)
    with (
        answering(
            HEAD + b'id: 1\ndata: {"a":1}\n\nid: 2\nda',
            HEAD + b'id: 2\ndata: {"a":2}\n\n',
            then=lambda _: None,
        ) as url,
        Client(url, timeout_s=60) as client,
    ):
        following = client.subscribe("Jar", "a")
        assert next(following) == EntityState({"a": 1}, Epoch(1))
        assert next(following) == EntityState({"a": 2}, Epoch(2))


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", OperationalError, "no event stream"),
        (HEAD + b"id: x\ndata: {}\n\n", OperationalError, "b'x' is not a number"),
        (HEAD + b"id: 1\ndata: {\n\n", OperationalError, "cannot be read"),
        (b"", Unreachable, "the connection broke"),
    ],
)
def test_a_strange_server_is_an_error(
    answer: bytes, error: type[PenstockError], message: str
) -> None:
    """No foreign answer is taken for a state, and none is asked again without end."""
    with (
        answering(answer, then=lambda connection: connection.close()) as url,
        Client(url, retries=1) as client,
        pytest.raises(error, match=message),
    ):
        next(client.subscribe("Jar", "a"))


def test_no_event_is_collected_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event beyond the limit is an error, on one line and on many."""
    monkeypatch.setattr(states, "_EVENT_BYTES_MAX", 1_000)
    for chunk in (b"data: " + b"x" * 200, b"data: " + b"x" * 200 + b"\n"):
        subscription: Subscription[Any] = Subscription("/entities/Jar/a/changes", lambda _: None)
        given = (state for _ in range(10) for state in subscription.states(chunk))
        with pytest.raises(OperationalError, match="has more than"):
            next(given)


def test_any_cut_of_the_bytes_gives_the_same_states() -> None:
    """Events in pieces of each size, with comments, both ends of lines, data on two lines, and kinds of later gateways."""
    text = (
        b"retry: 1500\n\n:\n\nid: 1\ndata: null\n\nevent: later\ndata: 1\n\nid: 2\r\ndata: {\r\ndata:}\r\n\r\n"
        b"id: 3\ndata: {\ndata: }\n\nid: 9\n\nid: 4\ndata:null\n\n"
    )
    for size in range(1, len(text)):
        subscription: Subscription[bytes] = Subscription("/x", lambda response: response.content)
        chunks = (text[at : at + size] for at in range(0, len(text), size))
        given = [state for chunk in chunks for state in subscription.states(chunk)]
        assert given == [
            EntityState(None, Epoch(1)),
            EntityState(b"{\n}", Epoch(2)),
            EntityState(None, Epoch(4)),
        ]
        assert (subscription.epoch, subscription.pause_s) == (4, 1.5)
