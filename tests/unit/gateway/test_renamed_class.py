"""A gateway serves a renamed class by both names, and rights, limits and pauses with the former name stay in force."""

from pathlib import Path

import httpx
import pytest

from penstock.deployment.loading import load_app
from penstock.gateway.auth.keys import KeyStore, utc_now
from penstock.gateway.auth.principal import check_scope, granted, parse_scope
from penstock.gateway.flow.limit_table import limits_in_force
from penstock.orders.pauses import PauseFile
from penstock.process.config import GatewayConfig
from tests.gateway_thread import RunningGateway
from tests.waiting import wait_for

SPEC = str(Path(__file__).with_name("renamed_app.py"))
SCOPES = {"former": ["call:Gate", "read:Gate"], "present": ["call:Door.enter"], "other": ["sql"]}


@pytest.mark.parametrize("scope", ["call:Gate", "call:Gate.enter", "read:Gate"])
def test_a_scope_may_have_the_former_name(scope: str) -> None:
    """So keys of the time before stay valid, and equal ones can be made."""
    check_scope(parse_scope(scope), load_app(SPEC))


def test_both_names_are_served(tmp_path: Path) -> None:
    """Neither name leads around a scope, a limit or a pause of the other."""
    store = KeyStore(tmp_path)
    keys = {
        name: {"X-API-Key": store.add(name, granted(scopes), None, utc_now())[1]}
        for name, scopes in SCOPES.items()
    }
    settings = GatewayConfig(limits="Gate.enter 3/h")
    assert limits_in_force(load_app(SPEC), settings.limits)
    with (
        RunningGateway(SPEC, tmp_path, settings) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
    ):

        def status(name: str, path: str, verb: str = "POST") -> int:
            return client.request(verb, path, headers=keys[name]).status_code

        assert status("former", "/call/Door/a/create") == 200
        assert status("former", "/call/Door/a/enter") == 200
        assert status("former", "/call/Gate/a/enter") == 200
        assert status("present", "/call/Gate/a/enter") == 200
        assert status("present", "/call/Gate/a/enter") == 429
        assert status("present", "/call/Door/a/enter") == 429
        assert status("present", "/call/Gate/a/create") == 403
        assert status("other", "/call/Gate/a/enter") == 403
        for name in ("Door", "Gate"):
            answer = client.get(f"/entities/{name}/a", headers=keys["former"])
            assert answer.json() == {"gate_id": "a", "entered": 3}
            assert status("present", f"/entities/{name}/a", "GET") == 403
        pauses = PauseFile(tmp_path)
        pauses.pause("Gate", "ops", "ice", 0)
        wait_for(lambda: status("former", "/call/Door/b/create") == 503, "the pause")
        assert status("former", "/call/Gate/b/create") == 503
