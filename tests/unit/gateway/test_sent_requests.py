"""`GET /requests/{id}` of requests that handlers have sent."""

from pathlib import Path

import httpx
import pytest

from penstock.base.ids import RequestId
from penstock.engine.limits import Limits
from penstock.log.api import Entry
from tests.differential.inline import Inline
from tests.faults.load import Flows
from tests.gateway_thread import RunningGateway


@pytest.mark.parametrize("cascade_steps", [1, 100])
def test_status_of_a_sent_request(tmp_path: Path, cascade_steps: int) -> None:
    """A sent request has the status and the value of any request, also if the cascade was cut; others are unknown."""
    flows, data = Flows(), tmp_path / "data"
    data.mkdir()
    other = flows.app.entities["Account"].of_text("b")
    requests = [flows.app.request("Account", name, "create") for name in "ab"]
    requests.append(flows.app.request("Account", "a", "pass_on", [other, 1]))
    limits = Limits(cascade_steps=cascade_steps)
    runtime = Inline(data, 2, flows.spec, flows.app.name, limits=limits)
    runtime.log.append(
        [Entry(RequestId(f"r{number}"), *given, 1) for number, given in enumerate(requests)]
    )
    reached = None
    while reached != (reached := int(runtime.log.end())):
        runtime.advance(reached)
    runtime.close()
    with (
        RunningGateway(flows.spec, data, drives=False, reads=False) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
    ):
        sent = client.get("/requests/r2~~2")
        assert (sent.status_code, sent.json()["status"], sent.json()["value"]) == (
            200,
            "answered",
            10,
        )
        assert client.get("/requests/r2~~9").status_code == 404
        assert client.get("/requests/r9~~1").status_code == 404
