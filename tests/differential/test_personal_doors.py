"""Events about persons come through each door of a gateway: no file shows them."""

from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import execute
from penstock.client.synchronous import Client
from penstock.deployment.loading import load_app
from penstock.model.call import append_of
from tests.gateway_thread import RunningGateway
from tests.readable_files import readable_in
from tests.unit.history.visit_app import Visit

VISITORS = "tests.unit.history.visit_app:app"


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the application have no keys yet, as in a process that begins."""
    app = load_app(VISITORS)
    for holder in (app, *app.stored.values(), *app.topology.event_types()):
        monkeypatch.setattr(holder, "keys", None)


@pytest.mark.usefixtures("no_keys")
def test_gateway_encrypts_events_about_persons(tmp_path: Path) -> None:
    """Clients with and without the application append over HTTP and in a pipeline."""
    data = tmp_path / "data"
    with RunningGateway(VISITORS, data) as gateway:
        app = load_app(VISITORS)
        with Client(gateway.url) as plain, Client(gateway.url, app=app) as typed:
            given: Any = {"user": "ada", "text": "json Lovelace"}
            assert plain.append("visits", [given]) == 1
            visit = Visit(app.entities["User"].cls("ada"), "typed Lovelace")
            assert typed.append("visits", [visit]) == 1
            with typed.pipeline() as pipeline:
                assert pipeline.send(append_of("visits", [visit])).result(60) == 1
            assert plain.append("notes", ["good morning"]) == 1
    assert readable_in(data, "good morning") != []
    assert readable_in(data, "Lovelace") == []


@pytest.mark.usefixtures("no_keys")
def test_command_encrypts_events_about_persons(tmp_path: Path) -> None:
    """The first command on a new directory has drawn the keys before it encodes the events."""
    data = tmp_path / "data"
    words = ["append", "visits", '{"user": "ada", "text": "hello Lovelace"}', "--app", VISITORS]
    execute([*words, "--data", str(data), "--timeout", "0"])
    assert readable_in(data, "visits") != []
    assert readable_in(data, "Lovelace") == []
