"""A gateway serves a deployment while it runs: paths, readers and limits change, and connections stay open."""

import gc
import json
import os
import textwrap
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from starlette.responses import Response

from penstock.base.ids import Epoch
from penstock.deployment.loading import load_app
from penstock.errors import Diverged
from penstock.gateway import serving
from penstock.gateway.handlers.entity_read import EntityReadHandler
from penstock.journal.deployments import Deployments
from penstock.process.data_directory import DataDirectory
from tests.deployments import kept_imports, record, stored_code, write_version
from tests.gateway_thread import RunningGateway
from tests.stream_journal import publish
from tests.waiting import wait_for

pytestmark = pytest.mark.long

__all__ = ["kept_imports"]

FIRST = """
    from penstock import App, Entity, key, readonly, stream

    class Jar(Entity):
        name: str = key()
        beans: int = 0

        def put(self, beans: int) -> int:
            self.beans += beans
            return self.beans

        @readonly
        def shown(self) -> str:
            return f"{self.beans} beans"

    opened = stream("opened", int)
    spilled = stream("spilled", int)
    app = App("jars", Jar, opened, spilled)
"""
SECOND = """
    from penstock import App, Entity, key, limit, readonly, route, stream

    class Jar(Entity):
        name: str = key()
        beans: int = 0
        lid: str = "blue"

        def put(self, beans: int) -> int:
            self.beans += beans
            return self.beans

        @limit("1 at once")
        def take(self, beans: int = 1) -> int:
            self.beans -= beans
            return self.beans

        @readonly
        @route("GET /jars/{name}")
        def shown(self) -> str:
            return f"{self.beans} beans, {self.lid} lid"

    opened = stream("opened", int)
    closed = stream("closed", int)
    app = App("jars", Jar, opened, closed)
"""


@pytest.mark.usefixtures("kept_imports")
def test_new_version_takes_the_requests_and_connections_stay(tmp_path: Path) -> None:
    """Paths, readers, streams and pages are those of the deployment; an event stream goes on."""
    first = write_version(tmp_path / "1", "jars", FIRST)
    with (
        RunningGateway(first, tmp_path / "data") as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
        client.stream("GET", "/streams/opened", headers={"Accept": "text/event-stream"}) as events,
    ):
        assert client.post("/call/Jar/tin/create", json={"beans": 3}).status_code == 200
        assert client.post("/call/Jar/tin/shown").json() == "3 beans"
        assert client.get("/jars/tin").status_code == 404
        Path(first).write_text(
            textwrap.dedent(SECOND)
        )  # the very file from which the gateway was started
        deployment = record(gateway, first)
        wait_for(lambda: gateway.deployments.served == deployment, "the switch")
        assert client.get("/jars/tin").text == "3 beans, blue lid"
        assert client.get("/entities/Jar/tin").json()["lid"] == "blue"
        names = [stream["name"] for stream in client.get("/streams").json()["streams"]]
        assert names == ["closed", "opened"]
        assert "/jars/{name}" in client.get("/openapi.json").json()["paths"]
        followers = 'penstock_stream_followers{stream="opened"} 1.0'
        assert followers in client.get("/metrics").text
        gateway.refuse_waiting()
        lines = list(events.iter_lines())  # the stream ends in good order
        assert lines[0].startswith("retry")


@pytest.mark.usefixtures("kept_imports")
def test_former_version_can_be_freed_after_its_last_response(tmp_path: Path) -> None:
    """The gateway says so when no request uses the former version, and holds it no longer, while event streams go on."""
    first = write_version(tmp_path / "1", "jars", FIRST)
    second = write_version(tmp_path / "2", "jars", SECOND)
    freed: list[bool] = []
    with (
        RunningGateway(first, tmp_path / "data") as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
        client.stream("GET", "/streams/opened", headers={"Accept": "text/event-stream"}),
        ThreadPoolExecutor(1) as threads,
    ):
        former = weakref.ref(gateway.versions.present)

        def collect() -> None:
            gc.collect()
            freed.append(former() is None)

        gateway.versions.on_retired = collect
        waiting = threads.submit(client.get, "/streams/opened?wait=60")
        wait_for(lambda: gateway.versions.present._running == 1, "the request")
        deployment = record(gateway, second)
        wait_for(lambda: gateway.deployments.served == deployment, "the switch")
        assert not any(freed)
        assert client.post("/streams/opened", json=[1]).status_code == 200
        assert waiting.result().status_code == 200
        wait_for(lambda: any(freed), "the end of the former version", 20)
        gateway.refuse_waiting()  # the event stream ends


async def unreadable(*_: object) -> Response:
    raise Diverged("Jar 'tin' is stored in another shape")


@pytest.mark.usefixtures("kept_imports")
def test_followers_of_a_removed_stream_end(tmp_path: Path) -> None:
    """An event stream, and a request that waits, get the error of an unknown stream."""
    first = write_version(tmp_path / "1", "jars", FIRST)
    second = write_version(tmp_path / "2", "jars", SECOND)
    with (
        RunningGateway(first, tmp_path / "data") as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
        ThreadPoolExecutor(1) as threads,
    ):
        events = {"Accept": "text/event-stream"}
        with client.stream("GET", "/streams/spilled", headers=events) as following:
            waiting = threads.submit(client.get, "/streams/spilled?wait=60")
            followers = 'penstock_stream_followers{stream="spilled"} 2.0'
            wait_for(lambda: followers in client.get("/metrics").text, "the second follower")
            deployment = record(gateway, second)
            wait_for(lambda: gateway.deployments.served == deployment, "the switch")
            lines = [line for line in following.iter_lines() if line not in ("", ":")]
        assert lines[:2] == ["retry: 1000", "event: refused"]
        for told in (lines[2].removeprefix("data: "), waiting.result().text):
            assert json.loads(told)["error"]["code"] == "request"
            assert "there is no stream 'spilled'" in told


FACTS = """
    from msgspec import Struct
    from penstock import App, stream

    class Paid(Struct, tag=True):
        order: int

    class Refunded(Struct, tag=True):
        order: int

    app = App("pressroom", stream("facts", {kinds}))
"""


async def nothing_is_due(*_: object) -> None:
    return None


@pytest.mark.usefixtures("kept_imports")
def test_a_filter_is_that_of_the_deployment_whose_events_it_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No event of a new kind is left out: not by a gateway that still loads its code, and not for a follower from before."""
    first = write_version(tmp_path / "1", "pressroom", FACTS.format(kinds="Paid"))
    second = write_version(tmp_path / "2", "pressroom", FACTS.format(kinds="Paid | Refunded"))
    data = tmp_path / "data"
    data.mkdir()
    query = "/streams/facts?order=1"
    with (
        closing(DataDirectory(data).open_journal(load_app(first))) as journal,
        RunningGateway(first, data, drives=False) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
        client.stream("GET", query, headers={"Accept": "text/event-stream"}) as following,
    ):
        with monkeypatch.context() as patch:
            patch.setattr(serving.VersionSwitch, "_due", nothing_is_due)
            every = Deployments(DataDirectory(data).journal_root)
            every.record(Epoch(0), 0, stored_code(data, second), {})
            publish(journal, {"facts": [[{"type": "Refunded", "order": 1}]]})
            wait_for(lambda: client.get(query).status_code == 503, "the deployment")
            assert client.get(query).json()["error"]["code"] == "state-unavailable"
            assert len(client.get("/streams/facts").json()["atoms"]) == 1
        data_of = (line for line in following.iter_lines() if line.startswith("data"))
        assert '"type":"Refunded"' in next(data_of)
        assert len(client.get(query).json()["atoms"]) == 1


@pytest.mark.usefixtures("kept_imports")
@pytest.mark.parametrize("broken", ["raise BaseException", "a reader fails"])
def test_version_that_cannot_be_served_changes_nothing(
    tmp_path: Path, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway goes on with the version before, `/readyz` has the reason, and the next deployment is served."""
    monkeypatch.setattr(serving, "READY_S", 3.0)
    first = write_version(tmp_path / "1", "jars", FIRST)
    if broken == "a reader fails":
        broken = f"import os\nif os.getpid() != {os.getpid()}:\n    raise ValueError"
    second = write_version(tmp_path / "2", "jars", f"{textwrap.dedent(SECOND)}\n{broken}\n")
    third = write_version(tmp_path / "3", "jars", SECOND)
    with (
        RunningGateway(first, tmp_path / "data") as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
    ):
        assert client.post("/call/Jar/tin/create", json={"beans": 3}).status_code == 200
        record(gateway, second)
        wait_for(lambda: gateway.deployments.problem, "the failure")
        (line,) = [line for line in client.get("/readyz").json()["missing"] if "older" in line]
        assert "deployment 1 cannot be served" in line
        assert client.post("/call/Jar/tin/shown").json() == "3 beans"
        assert client.get("/jars/tin").status_code == 404
        with monkeypatch.context() as patch:  # a row in the shape of the deployment
            patch.setattr(EntityReadHandler, "show", unreadable)
            refused = client.get("/entities/Jar/tin")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "state-unavailable")
        monkeypatch.setattr(serving, "READY_S", 60.0)
        deployment = record(gateway, third)
        wait_for(lambda: gateway.deployments.served == deployment, "the switch")
        assert client.get("/jars/tin").text == "3 beans, blue lid"
        assert not gateway.deployments.problem
