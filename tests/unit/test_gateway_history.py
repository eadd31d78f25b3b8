"""Traces and histories over HTTP: what the commands say, as long as one may ask."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock import AsyncClient, Client
from penstock.errors import NoSuchEntity
from penstock.gateway import history
from tests.gateway_thread import RunningGateway

LEDGER = str(Path(__file__).parent / "ledger.py")
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Give a client of a running ledger with two accounts, of which one has paid the other."""
    data = tmp_path_factory.mktemp("ledger")
    with RunningGateway(LEDGER, data) as gateway, httpx.Client(base_url=gateway.url) as client:
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
        ("/entities/Account/a/history?colour=1", 400, "request"),
    ],
)
def test_what_cannot_be_shown_is_refused(
    ledger: httpx.Client, path: str, status: int, code: str
) -> None:
    """Unknown requests, entities, classes and epochs are the caller's errors; nothing is an option."""
    assert asked(ledger, path, status)["error"]["code"] == code


def test_few_run_at_once(ledger: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond what one gateway runs at once the answer is 429, to be asked again."""
    monkeypatch.setattr(history, "RUNNING_MAX", 0)
    answer = ledger.get("/requests/paid/trace")
    assert answer.status_code == 429
    assert "Retry-After" in answer.headers


def test_time_is_bounded(ledger: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes too long is ended, and said to have been."""
    monkeypatch.setattr(history, "TIME_S", 0.05)
    began = time.monotonic()
    assert asked(ledger, "/requests/paid/trace", 504)["error"]["code"] == "timed-out"
    assert time.monotonic() - began < DEADLINE_S


def test_paths_are_described(ledger: httpx.Client) -> None:
    """The description of the gateway has both."""
    paths = asked(ledger, "/openapi.json")["paths"]
    assert "/requests/{id}/trace" in paths
    assert "/entities/Account/{key}/history" in paths


def test_clients_ask_for_both(ledger: httpx.Client) -> None:
    """Both clients return what the gateway tells, and raise what it refuses."""
    url = str(ledger.base_url)
    with Client(url) as client:
        assert client.trace("paid")["reply"] == {"value": 6}
        assert len(client.history("Account", "b", last=1)["changes"]) == 1
        with pytest.raises(NoSuchEntity):
            client.history("Account", "nobody")

    async def ask() -> object:
        async with AsyncClient(url) as client:
            await client.history("Account", "a")
            return (await client.trace("paid"))["position"]

    assert asyncio.run(ask()) == 0
