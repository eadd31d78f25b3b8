"""Traces and histories over HTTP equal those of the commands, within the limits of a gateway."""

import asyncio
import gc
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from penstock import AsyncClient, Client
from penstock.engine.execute import Limits
from penstock.errors import NoSuchEntity, RequestError
from penstock.gateway.handlers import history
from penstock.process import serving
from tests.checkout import TOP
from tests.gateway_thread import RunningGateway
from tests.waiting import wait_for

pytestmark = pytest.mark.long

LEDGER = str(TOP / "tests" / "unit" / "history" / "savepoint_app.py")
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Give a client of a running ledger with two accounts, of which one has paid the other."""
    data = tmp_path_factory.mktemp("ledger")
    with (
        RunningGateway(LEDGER, data) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
    ):
        client.timeout = httpx.Timeout(DEADLINE_S)
        for name, balance in (("a", 10), ("b", 0)):
            client.post(f"/call/Account/{name}/create", json={"balance": balance})
        paid = client.post(
            "/call/Account/a/pay", json=[4, "b"], headers={"Idempotency-Key": "paid"}
        )
        assert paid.json() == 6
        yield client


def asked(client: httpx.Client, path: str, status: int = 200) -> Any:
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_trace_is_that_of_the_command(ledger: httpx.Client) -> None:
    """The tree of calls, the entities and the reply are there."""
    found = asked(ledger, "/requests/paid/trace")
    assert found["reply"] == {"value": 6}
    assert asked(ledger, "/requests/pai/trace")["request_id"] == "paid"  # the beginning is unique
    for name in ("appended", "committed"):
        assert found[name].endswith("Z")
        told = datetime.fromisoformat(found[name]).timestamp()
        assert told == pytest.approx(found[f"{name}_us"] / 1e6)
    assert [one["call"] for one in found["root"]["calls"]] == [
        "Account/b.add(4)",
        "Account/a.add(-4)",
    ]
    assert {one["key"]: one["after"] for one in found["entities"]} == {
        "a": {"balance": 6},
        "b": {"balance": 4},
    }


def test_history_is_that_of_the_command(ledger: httpx.Client) -> None:
    """Changes come with their requests, and as few as asked for."""
    found = asked(ledger, "/entities/Account/b/history")
    assert [one["kind"] for one in found["changes"]] == ["create", "update"]
    assert found["changes"][1]["request_id"] == "paid"
    committed = datetime.fromisoformat(found["changes"][1]["time"])
    assert committed.timestamp() == pytest.approx(found["changes"][1]["time_us"] / 1e6)
    newest = asked(ledger, "/entities/Account/b/history?last=1")
    assert [one["kind"] for one in newest["changes"]] == ["update"]
    assert newest["more"]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/requests/nobody/trace", 404, "not-found"),
        ("/requests/--help/trace", 404, "not-found"),
        ("/entities/Account/nobody/history", 404, "no-such-entity"),
        ("/entities/Account/--json/history", 404, "no-such-entity"),
        ("/entities/Nothing/a/history", 400, "request"),
        ("/entities/Account/a/history?from=-1", 400, "request"),
        ("/entities/Account/a/history?from=99", 400, "request"),
        ("/entities/Account/a/history?last=0", 400, "request"),
        ("/entities/Account/a/history?to=9999999999999999999", 400, "request"),
        ("/entities/Account/a/history?colour=1", 400, "request"),
    ],
)
def test_what_cannot_be_shown_is_refused(
    ledger: httpx.Client, path: str, status: int, code: str
) -> None:
    """Unknown requests, entities, classes and epochs are the caller's errors; nothing is an option."""
    assert asked(ledger, path, status)["error"]["code"] == code


CHILD = (
    "import os; from msgspec import Raw; from penstock import errors\n"
    "from penstock.process.question import answer_question\n"
)
"""It does not import what reads a history, which takes most of the time of a child."""

ENDLESS = "import time; time.sleep(600)"


def program(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Run other code where the commands are run."""
    monkeypatch.setattr(history, "PROGRAM", (sys.executable, "-c", code))


def running() -> list[psutil.Process]:
    endless = []
    for process in psutil.Process().children():
        with suppress(psutil.Error):  # it may end meanwhile
            if ENDLESS in process.cmdline():
                endless.append(process)
    return endless


@contextmanager
def asking(client: httpx.Client) -> Iterator[socket.socket]:
    """Ask for a trace, and do not wait for it."""
    place = client.base_url
    with socket.create_connection((place.host, place.port or 0)) as connection:
        head = f"GET /requests/paid/trace HTTP/1.1\r\nHost: {place.host}:{place.port}\r\n\r\n"
        connection.sendall(head.encode())
        yield connection


def test_few_run_at_once(ledger: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many that ask at one moment a few have their turn; the others are to ask again."""
    program(monkeypatch, ENDLESS)
    with ExitStack() as stack:
        for _ in range(history.RUNNING_MAX):
            stack.enter_context(asking(ledger))
        wait_for(lambda: len(running()) == history.RUNNING_MAX, "they run")
        for _ in range(3):
            refused = ledger.get("/requests/paid/trace")
            assert refused.status_code == 429
            assert "Retry-After" in refused.headers
    wait_for(lambda: not running(), "they end with their connections")


def test_time_is_bounded(ledger: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that takes too long is ended, and the answer says so."""
    program(monkeypatch, ENDLESS)
    monkeypatch.setattr(history, "TIME_S", 0.05)
    # A process of another test may have ended a moment before its request leaves its place.
    answers = iter(lambda: ledger.get("/requests/paid/trace"), None)
    answer = next(each for each in answers if each.status_code != 429)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timed-out")
    assert running() == []


def test_nothing_runs_for_a_client_that_has_gone(
    ledger: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A connection that ends takes its process with it, which is of low priority, and the log says nothing."""
    program(monkeypatch, ENDLESS)
    with asking(ledger):
        wait_for(running, "the process starts")
        wait_for(lambda: running()[0].nice() > 0, "it gives way to others")
    wait_for(lambda: not running(), "it ends with the connection")
    ledger.get("/healthz")  # the event loop has gone on
    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


def test_nothing_runs_after_the_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that stops ends the children that it started."""
    program(monkeypatch, ENDLESS)
    monkeypatch.setattr(serving, "END_S", 0.2)  # the connection stays open for longer
    with ExitStack() as connections:
        with (
            RunningGateway(LEDGER, tmp_path) as gateway,
            httpx.Client(base_url=gateway.url, timeout=60) as client,
        ):
            connections.enter_context(asking(client))
            wait_for(running, "the process starts")
        wait_for(lambda: not running(), "it ends with the gateway")


def test_answer_is_bounded(ledger: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway does not buffer an answer beyond its limit."""
    program(monkeypatch, "print('x' * 100_000)")
    monkeypatch.setattr(history, "BYTES_MAX", 10_000)
    assert asked(ledger, "/requests/paid/trace", 413)["error"]["code"] == "record-too-large"


def test_what_handlers_print_is_not_the_answer(
    ledger: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text that a handler prints, also below Python, does not reach the answer."""
    program(
        monkeypatch,
        f"{CHILD}answer_question(Raw, lambda *_: os.system('echo hello') or print('hello') or b'{{}}')",
    )
    assert asked(ledger, "/requests/paid/trace") == {}


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("raise errors.Diverged('/secret/path')", 500, "diverged"),
        ("raise errors.StateUnavailable('disk')", 503, "state-unavailable"),
        ("raise KeyError('/secret/path')", 500, "penstock"),
        ("os.kill(os.getpid(), 9)", 500, "penstock"),
    ],
)
def test_failures_have_their_status(
    ledger: httpx.Client, monkeypatch: pytest.MonkeyPatch, code: str, status: int, kind: str
) -> None:
    """Failures of the child have the status of their error, and reveal nothing of the machine."""
    program(
        monkeypatch,
        f"{CHILD}def look_up(lookup, _): {code}\nanswer_question(Raw, look_up)",
    )
    told = asked(ledger, "/requests/paid/trace", status)["error"]
    assert told["code"] == kind
    assert "secret" not in told["message"]


def test_limits_are_those_of_the_gateway(
    ledger: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handlers run again within the limits that the gateway was configured with."""
    program(
        monkeypatch,
        f"{CHILD}from penstock.history.trace import Lookup\n"
        "answer_question(Lookup, lambda lookup, _: b'%d' % lookup.config.limits.time_ms)",
    )
    assert asked(ledger, "/requests/paid/trace") == Limits().time_ms


def test_paths_are_described(ledger: httpx.Client) -> None:
    """The description of the gateway has both."""
    paths = asked(ledger, "/openapi.json")["paths"]
    assert "/requests/{id}/trace" in paths
    assert "/entities/Account/{key}/history" in paths


def test_clients_ask_for_both(ledger: httpx.Client) -> None:
    """Both clients return the gateway's answers, and raise its refusals."""
    url = str(ledger.base_url)
    with Client(url) as client:
        assert client.trace("paid")["reply"] == {"value": 6}
        (newest,) = client.history("Account", "b", last=1)["changes"]
        epoch = newest["epoch"]
        only = client.history("Account", "b", from_epoch=epoch, to_epoch=epoch)
        assert {one["epoch"] for one in only["changes"]} == {epoch}
        with pytest.raises(RequestError, match="epochs"):
            client.history("Account", "b", from_epoch=epoch + 1_000)
        with pytest.raises(NoSuchEntity):
            client.history("Account", "nobody")

    async def ask() -> object:
        async with AsyncClient(url) as client:
            await client.history("Account", "a")
            return (await client.trace("paid"))["position"]

    assert asyncio.run(ask()) == 0
