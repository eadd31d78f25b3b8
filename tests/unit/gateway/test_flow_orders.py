"""Operators pause and resume through a gateway, and `penstock flow --url` gives the same orders."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock import Client
from penstock.cli.main import execute
from penstock.errors import Paused
from penstock.gateway.auth.keys import KeyStore, utc_now
from penstock.gateway.auth.principal import granted
from tests.gateway_thread import RunningGateway
from tests.waiting import wait_for

SPEC = str(Path(__file__).with_name("turnstile_app.py"))


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    """Make a key of each of two scopes, before the gateway starts."""
    store = KeyStore(tmp_path)
    return {
        each: store.add(each, granted([each]), None, utc_now())[1] for each in ("admin", "call")
    }


@pytest.fixture
def gateway(tmp_path: Path, keys: dict[str, str]) -> Iterator[RunningGateway]:
    assert keys
    with RunningGateway(SPEC, tmp_path, reads=False) as running:
        yield running


def test_orders_over_http(gateway: RunningGateway, keys: dict[str, str]) -> None:
    """An order is recorded with the name of its key, and needs the scope `admin`."""
    headers = {"X-API-Key": keys["admin"]}
    with httpx.Client(base_url=gateway.url, headers=headers, timeout=60) as client:
        caller = {"X-API-Key": keys["call"]}
        # The gateways of all tests of a process share their metrics; a request sets the count anew.
        assert client.post("/call/Gate/a/create", json={}, headers=caller).status_code == 200

        def is_idle() -> bool:
            return bool(client.get("/flow").json()["under_way"] == 0)

        wait_for(is_idle, "the end of the request")
        state = client.get("/flow").json()
        assert "Gate.enter" in state["targets"]
        assert (state["standing"]["paused"], state["drained"]) == ([], False)
        order = {"kind": "pause", "target": "Gate", "reason": "ice"}
        (action,) = client.post("/flow", json=order).json()["standing"]["paused"]
        assert (action["target"], action["by"], action["reason"]) == ("Gate", "admin", "ice")
        for body, named in (
            ({"kind": "pause", "target": "Gat"}, "did you mean Gate"),
            ({"kind": "stop", "target": "Gate"}, "not an order"),
            ({"kind": "resume", "target": "Gate.enter"}, "not paused"),
        ):
            answer = client.post("/flow", json=body)
            assert answer.status_code == 400
            assert named in answer.json()["error"]["message"]
        assert client.get("/flow", headers=caller).status_code == 403
        assert client.post("/flow", json=order, headers=caller).status_code == 403
        order["kind"] = "resume"
        assert client.post("/flow", json=order).json()["standing"]["paused"] == []


def test_gateway_without_keys_takes_orders_of_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without keys, a command needs none either; a page of another site gives no orders."""
    with RunningGateway(SPEC, tmp_path, reads=False) as gateway:
        order, page = {"kind": "pause", "target": "*"}, {"Origin": "https://elsewhere.example"}
        assert httpx.post(f"{gateway.url}/flow", json=order, headers=page).status_code == 403
        assert httpx.get(f"{gateway.url}/flow").json()["standing"]["paused"] == []
        remote = ["--url", gateway.url]
        assert execute(["flow", "pause", "Gate", "--reason", "ice", *remote]) == 0
        assert execute(["flow", "resume", "Gate", *remote]) == 0
    assert "Resumed Gate." in capsys.readouterr().out


def test_command_orders_through_a_gateway(
    gateway: RunningGateway, keys: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Pause, drain, show and resume need no data directory."""
    remote = ["--url", gateway.url, "--key", keys["admin"]]
    assert execute(["flow", "pause", "Gate", "--reason", "ice", *remote]) == 0
    with Client(gateway.url, key=keys["call"], retries=0) as client:

        def is_paused() -> bool:
            try:
                client.call.Gate("a").enter()
            except Paused:
                return True
            except Exception:  # noqa: BLE001 -- the gateway does not obey yet
                return False
            return False

        wait_for(is_paused, "the pause")
    assert execute(["flow", "drain", *remote]) == 0
    assert execute(["flow", "show", *remote]) == 0
    assert execute(["flow", "resume", *remote]) == 0
    told = capsys.readouterr().out
    for text in ("Paused Gate", "Drained", f"--url {gateway.url}", "ice", "Still paused: Gate"):
        assert text in told.replace("\n", " "), told
    assert execute(["flow", "pause", "Gate", "enter", "--reason", "ice", *remote]) == 2
