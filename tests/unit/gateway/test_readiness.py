"""`/readyz` tells of the processes beside the gateway, and fails for none of them."""

from pathlib import Path

import httpx

from penstock.process import presence, startup
from tests.checkout import SHOP
from tests.gateway_thread import RunningGateway


def test_readiness_tells_of_starting_processes(tmp_path: Path) -> None:
    """The gateway is ready for requests, and says which step the driver and the SQL view have reached."""
    with RunningGateway(SHOP, tmp_path, drives=False) as gateway:
        startup.note(tmp_path, "driver", "Java starts")
        startup.note(tmp_path, "view", "its tables are opened")
        ready = httpx.get(f"{gateway.url}/readyz")
        body = ready.json()
        assert (ready.status_code, body["driver"], body["view"]) == (200, "starting", "starting")
        assert "(Java starts)" in body["missing"][0]
        assert "(its tables are opened)" in body["missing"][1]
        with presence.present(tmp_path, "view", SHOP, socket="view.sock"):
            assert httpx.get(f"{gateway.url}/readyz").json()["view"] == "running"
