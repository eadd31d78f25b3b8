"""Orders to erase a person, through a gateway and from commands: they wait for the driver and return the certificate."""

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from penstock.cli.main import execute
from penstock.errors import Internal
from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.principal import granted
from penstock.orders.erasure_order import ErasureOrder
from penstock.orders.order import Place
from penstock.process.erasures import Certificate, Erasures
from tests.differential.committed import state_of
from tests.differential.persons import ADA, BOB, PERSONS, Persons
from tests.gateway_thread import RunningGateway
from tests.waiting import wait_for


@pytest.fixture
def persons(tmp_path: Path) -> Persons:
    running = Persons(tmp_path / "data")
    running.begin()
    return running


def executed(persons: Persons, order: Future[Any]) -> Any:
    """Let the driver process the log until an order has its outcome, and return it."""
    wait_for(lambda: persons.run().lsn >= 0 and order.done(), "the order")
    return order.result()


@pytest.fixture
def keys(persons: Persons) -> dict[str, str]:
    """Make a key of each of two scopes, before the gateway starts."""
    store = KeyStore(persons.folder)
    scopes = ("admin", "read")
    return {each: store.add(each, granted([each]), None, datetime.now(UTC))[1] for each in scopes}


def test_operator_erases_through_a_gateway(
    persons: Persons, keys: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """The answer is the certificate, the log output names the operator, and others may not order or list."""
    admin, reader = {"X-API-Key": keys["admin"]}, {"X-API-Key": keys["read"]}
    with (
        RunningGateway(PERSONS, persons.folder, drives=False, reads=False) as gateway,
        httpx.Client(base_url=gateway.url, timeout=120) as client,
        ThreadPoolExecutor(1) as threads,
        caplog.at_level(logging.INFO, logger="penstock.gateway.order_desk"),
    ):

        def ordered(body: object, headers: dict[str, str], query: str = "") -> httpx.Response:
            return client.post(f"/erasures{query}", json=body, headers=headers)

        answer = executed(persons, threads.submit(ordered, {"subject": "User/ada"}, admin))
        assert answer.status_code == 200, answer.text
        made = msgspec.json.decode(answer.content, type=Certificate)
        assert (made.subject, made) == (ADA, made.sealed())
        assert [msgspec.to_builtins(made)] == client.get("/erasures", headers=admin).json()
        assert "an erasure was ordered" in caplog.messages
        assert Erasures(persons.folder).generation(ADA) == 1
        for body, headers, status in (
            ({"subject": "User/bob"}, reader, 403),
            ({"subject": "Page/home"}, admin, 400),
            ({"subject": 7}, admin, 400),
        ):
            assert ordered(body, headers).status_code == status
        assert client.get("/erasures", headers=reader).status_code == 403
        waiting = ordered({"subject": "User/bob"}, admin, "?timeout=0")
        assert (waiting.status_code, waiting.headers["Location"]) == (202, "/erasures")
        assert (
            "the erasure of User/bob has not taken effect within 0 s" in waiting.json()["message"]
        )
    persons.runtime.close()


def test_command_orders_through_a_gateway(
    persons: Persons, keys: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """`penstock erase --url` waits for the certificate, and `--list --url` shows it; a name without an entity is told."""
    with (
        RunningGateway(PERSONS, persons.folder, drives=False, reads=False) as gateway,
        ThreadPoolExecutor(1) as threads,
    ):
        remote = ["--url", gateway.url, "--key", keys["admin"]]
        order = threads.submit(execute, ["erase", "User/bob", "--yes", *remote])
        assert executed(persons, order) == 0
        told = capsys.readouterr().out
        assert "User/bob is erased from epoch 6 on" in told.replace("\n", " ")
        assert "there was no" not in told
        order = threads.submit(execute, ["erase", "User/bobb", "--yes", *remote])
        assert executed(persons, order) == 0
        assert "there was no User/bobb: nothing was deleted" in capsys.readouterr().out
        assert execute(["erase", "--list", *remote]) == 0
    assert sorted(state_of(persons.runtime.journal)) == ["Page/home", ADA]
    made = [(each.subject, each.existed) for each in persons.certificates()]
    assert made == [(BOB, True), ("User/bobb", False)]
    persons.runtime.close()


def test_failed_order_may_be_repeated(persons: Persons, monkeypatch: pytest.MonkeyPatch) -> None:
    """An erasure that is recorded as failed destroys no key; the same order later is executed."""
    controls = persons.runtime.driver.controls
    publish = controls._publish

    def fail_once(*_: object) -> object:
        monkeypatch.setattr(controls, "_publish", publish)
        raise MemoryError

    def order() -> Certificate:
        place = Place(persons.runtime.config, persons.app)
        return ErasureOrder(ADA).carry_out(place, 60.0)

    monkeypatch.setattr(controls, "_publish", fail_once)
    with ThreadPoolExecutor(1) as threads:
        with pytest.raises(Internal):
            executed(persons, threads.submit(order))
        persons.runtime.restart()
        persons.runtime.driver.recover(persons.app).result()
        assert persons.certificates() == []
        assert persons.send("User", "ada", "rename", "Ada").value() == "Countess Lovelace"
        made = executed(persons, threads.submit(order))
        assert made.subject == ADA
        assert executed(persons, threads.submit(order)).generation == 1
    assert Erasures(persons.folder).generation(ADA) == 2
    persons.runtime.close()


def test_open_gateway_takes_no_order(persons: Persons) -> None:
    """Without keys, everybody who reaches the gateway is its operator; an erasure needs a key."""
    with RunningGateway(PERSONS, persons.folder, drives=False, reads=False) as gateway:
        answer = httpx.post(f"{gateway.url}/erasures", json={"subject": "User/ada"})
    assert answer.status_code == 403
    assert "penstock keys add" in answer.json()["error"]["message"]
    persons.runtime.close()
