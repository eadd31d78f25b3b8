"""`DELETE /requests/{id}` and `penstock cancel` of a request that has run, and whose cascade goes on."""

import json
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from penstock.base.ids import Epoch, RequestId
from penstock.cli.main import execute
from penstock.engine.limits import Limits
from penstock.gateway.auth.keys import KeyStore, utc_now
from penstock.gateway.auth.principal import granted
from penstock.journal.api import PartKind
from penstock.log.api import Entry
from tests.differential.inline import Inline
from tests.faults.load import Flows
from tests.gateway_thread import RunningGateway

FLOWS = Flows()


def driven(data: Path) -> Inline:
    return Inline(data, 1, FLOWS.spec, FLOWS.app.name, limits=Limits(cascade_steps=1))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory in which the cascade of `call~root` was cut, and `call~other` has none."""
    runtime = driven(tmp_path)
    other = FLOWS.app.entities["Account"].of_text("b")
    bodies = {name: FLOWS.app.request("Account", name, "create") for name in "ab"}
    bodies["call~other"] = FLOWS.app.request("Account", "a", "add", [1])
    bodies["call~root"] = FLOWS.app.request("Account", "a", "pass_on", [other, 9])
    runtime.log.append([Entry(RequestId(name), *given, 1) for name, given in bodies.items()])
    runtime.advance(4)
    runtime.close()
    return tmp_path


def results(data: Path) -> dict[str, Any]:
    """Process the log, and return the results of its records."""
    runtime = driven(data)
    reached = None
    while reached != (reached := int(runtime.log.end())):
        runtime.advance(reached)
    last = runtime.journal.last()
    assert last is not None
    columns = ("request_id", "reply")
    found = {
        row["request_id"]: msgspec.msgpack.decode(row["reply"])
        for _, rows in runtime.journal.rows(PartKind.TRANSACTIONS, Epoch(-1), last.epoch, columns)
        for row in rows.to_pylist()
    }
    runtime.close()
    return found


def test_an_operator_ends_the_rest_of_a_cascade(data: Path) -> None:
    """A caller is too late, and so is an operator who names a request without such a rest."""
    store = KeyStore(data)
    keys = {
        each: store.add(each, granted([each]), None, utc_now())[1] for each in ("admin", "call")
    }
    with (
        RunningGateway(FLOWS.spec, data, drives=False, reads=False) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
    ):
        caller, admin = ({"X-API-Key": keys[each]} for each in ("call", "admin"))
        assert client.delete("/requests/root", headers=caller).json()["error"]["code"] == "too-late"
        assert (
            client.delete("/requests/call~other", headers=admin).json()["error"]["code"]
            == "too-late"
        )
        first = client.delete("/requests/call~root", headers=admin)
        assert (first.status_code, first.json()["status"]) == (200, "ending")
        again = client.delete("/requests/call~root", headers=admin)
        assert again.json() == first.json()
    replies = results(data)
    assert replies["end~~call~root"]["requests"] > 0
    assert "call~root~~c3" not in replies


def test_the_command_ends_the_rest_of_a_cascade(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says so; a second command, when nothing is left, is too late."""
    command = ["cancel", "call~root", "--data", str(data), "--json"]
    assert execute(command) == 0
    assert json.loads(capsys.readouterr().out) == {"request_id": "call~root", "status": "ending"}
    assert "call~root~~c3" not in results(data)
    assert execute(command) != 0
    assert "too-late" in capsys.readouterr().out
