"""`penstock flow`: pauses that gateways obey, what is recorded, and the wait of a drain."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from penstock.cli.main import execute
from penstock.cli.orders.flow import await_drained
from penstock.errors import OperationalError
from penstock.gateway.auth import watched_file
from tests.checkout import SHOP
from tests.gateway_thread import RunningGateway

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run a `flow` command on the data directory `data`; return its exit code and its output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("LOGNAME", "ada")

    def run(command: str, *arguments: str) -> tuple[int, str, str]:
        code = execute(["flow", command, SHOP, *arguments, "--data", "data"])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def test_pause_closes_admission_and_resume_opens_it(
    flow: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running gateway refuses a paused class with 503, serves everything else, and serves it again."""
    monkeypatch.setattr(watched_file, "LOOK_S", 0.0)  # each request reads the file
    with (
        RunningGateway(SHOP, tmp_path / "data", reads=False) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as http,
    ):

        def statuses() -> list[int]:
            paths = ("/call/Item/a/add", "/send/Item/a/add", "/call/User/ada/add_funds")
            calls = [http.post(path, json=[1]).status_code for path in paths]
            return [*calls, http.get("/entities/Item/a").status_code]

        assert http.post("/call/Item/a/create", json={"price": 3, "stock": 1}).is_success
        assert http.post("/call/User/ada/create", json={}).is_success
        open_gate = statuses()
        assert open_gate == [200, 202, 200, 200]
        code, out, _ = flow("pause", "Item", "--reason", "prices are wrong")
        assert (code, out) == (0, "Paused Item. Gateways refuse such requests within a second.\n")
        assert statuses() == [503, 503, *open_gate[2:]]
        refused = http.post("/call/Item/a/add", json=[1])
        assert refused.json()["error"]["code"] == "paused"
        assert refused.json()["error"]["message"] == "Item is paused: prices are wrong"
        assert refused.headers["retry-after"] == "5"
        figures = http.get("/metrics").text
        assert re.search(r'_refused_total{reason="paused",target="Item"} [1-9]', figures)
        assert flow("pause", "--reason", "all")[0] == 0
        assert statuses() == [503, 503, 503, 200]
        code, out, _ = flow("resume")
        assert out.startswith("Resumed everything.\nStill paused: Item, since 20")
        assert flow("resume", "Item")[:2] == (0, "Resumed Item.\n")
        assert statuses() == open_gate


def test_show_prints_who_when_and_why(flow: Run) -> None:
    """The record has each action with its user, time and reason, also as JSON."""
    assert "Nothing is paused." in flow("show")[1]
    flow("pause", "Order.checkout", "--reason", "payment is down")
    out = flow("show")[1]
    assert re.search(r"Order\.checkout, since 20\S+ \S+ UTC, by ada@\S+: payment is down", out)
    flow("resume", "Order.checkout", "--reason", "it works")
    shown = json.loads(flow("show", "--json")[1])
    assert shown["paused"] == []
    assert [(one["kind"], one["reason"]) for one in shown["newest"]] == [
        ("resume", "it works"),
        ("pause", "payment is down"),
    ]


@pytest.mark.parametrize("target", ["Ordr", "Order.chekout", "checkout_al", "*.x"])
def test_unknown_target_is_refused(flow: Run, target: str) -> None:
    """A target that the application lacks changes nothing."""
    code, _, err = flow("pause", target, "--reason", "typo")
    assert code == 2
    assert "there is no" in err
    assert "Nothing is paused." in flow("show")[1]


def test_reason_is_required(flow: Run) -> None:
    """A pause without a reason is refused."""
    assert flow("pause", "Order")[0] == 2


def test_drain_waits_until_nothing_is_under_way() -> None:
    """The wait begins when every gateway obeys the pause, and ends with the last request."""
    now_s, counts = [0.0], [3, 1, 0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    await_drained(lambda: counts.pop(0), 300, lambda: now_s[0], sleep)
    assert not counts
    assert now_s[0] == pytest.approx(1.4)


def test_drain_says_how_many_requests_remain() -> None:
    """When the time is over, the error names the number, and that nothing is lost."""
    now_s = [0.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    with pytest.raises(OperationalError, match="7 requests still wait after 5 s"):
        await_drained(lambda: 7, 5, lambda: now_s[0], sleep)
    assert now_s[0] == pytest.approx(5.0, abs=0.3)


def test_drain_pauses_everything(flow: Run) -> None:
    """An idle application is drained after a second, and stays paused."""
    code, out, _ = flow("drain", "--reason", "new disk")
    assert code == 0
    assert "Drained: every admitted request is committed." in out
    assert "everything, since" in flow("show")[1]
