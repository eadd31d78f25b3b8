"""Operators order the next attempt of failed requests over HTTP; other callers may not."""

from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.principal import granted
from tests.deployments import kept_imports, write_version
from tests.gateway_thread import RunningGateway
from tests.unit.orders.test_attempts import APP

__all__ = ["kept_imports"]


@pytest.fixture
def spec(tmp_path: Path, kept_imports: None) -> str:
    return write_version(tmp_path / "app", "http_tills", APP.replace("{amount}", "amount[0]"))


def test_operators_order_attempts_of_failed_requests(tmp_path: Path, spec: str) -> None:
    """A failed request of any caller runs again or is discarded; the answers say why another one does not."""
    store, now = KeyStore(tmp_path / "data"), datetime.now(UTC)
    caller = store.add("caller", granted(["call"]), None, now)[1]
    admin = store.add("admin", granted(["admin", "call"]), None, now)[1]
    with (
        RunningGateway(spec, tmp_path / "data", reads=False) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as http,
    ):

        def post(path: str, key: str, json: object = (), request_id: str = "") -> httpx.Response:
            named = {"Idempotency-Key": request_id} if request_id else {}
            headers = {"Authorization": f"Bearer {key}", **named}
            return http.post(path, json=json, headers=headers)

        post("/call/Till/a/create", caller, {}).raise_for_status()
        for request_id in ("one", "two"):
            failed = post("/call/Till/a/pay", caller, [5], request_id)
            assert failed.json()["error"]["code"] == "unhandled", failed.text
        assert post("/call/Till/a/refuse", caller, [], "three").json()["error"]["code"] == "empty"
        assert post("/requests/one/retry", caller).status_code == 403
        retried = post("/requests/caller~one/retry", admin)
        assert retried.status_code == 200, retried.text
        assert retried.json()["request_id"] == "caller~one"
        body = {"order": "discard", "ids": ["caller~two", "caller~three", "caller~four"]}
        done = post("/failed", admin, body).json()
        assert [each["request_id"] for each in done["attempts"]] == ["caller~two"]
        assert [(each["request_id"], each["code"]) for each in done["refused"]] == [
            ("caller~three", "too-late"),
            ("caller~four", "request"),
        ]
        refused = post("/requests/caller~three/retry", admin)
        assert (refused.status_code, "is final" in refused.text) == (409, True)
        status = http.get("/requests/two?wait=30", headers={"Authorization": f"Bearer {caller}"})
        assert status.json()["error"]["code"] == "cancelled"
        again = http.get("/requests/one?wait=30", headers={"Authorization": f"Bearer {caller}"})
        assert (again.json()["error"]["code"], again.json()["lsn"]) == ("unhandled", 4)
        assert http.get("/failed", headers={"Authorization": f"Bearer {caller}"}).status_code == 403
