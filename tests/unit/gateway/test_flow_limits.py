"""Limits on requests: their text, their counts, and the answers of a gateway that enforces them."""

import re
from pathlib import Path

import httpx
import pytest

from penstock import App, Client, ConfigError, Entity, RequestError, Throttled, key, limit
from penstock.errors import DefinitionError
from penstock.gateway.auth.keys import KeyStore, utc_now
from penstock.gateway.auth.principal import EVERYTHING
from penstock.gateway.flow.limit_table import (
    GROUPS_MAX,
    Caller,
    ConcurrencyLimiter,
    Excess,
    LimitTable,
    RateLimiter,
    limits_in_force,
)
from penstock.model.limit import parse_limit, parse_limits
from penstock.process.config import GatewayConfig
from tests.gateway_thread import RunningGateway
from tests.serial_driver import SerialDriver
from tests.unit.gateway import turnstile_app

SPEC = str(Path(__file__).with_name("turnstile_app.py"))


def admitted(limiter: RateLimiter, group: str, times_s: list[float]) -> list[bool]:
    """Offer a request at each time; say which of them the limiter admits."""
    answers = []
    for now_s in times_s:
        answers.append(limiter.wait_s(group, now_s) == 0)
        if answers[-1]:
            limiter.take(group, now_s)
    return answers


def test_rate_admits_its_burst_and_then_its_rate() -> None:
    """After a rest the burst is admitted at once, and later requests one by one at the rate."""
    limiter = RateLimiter(rate_per_s=2, burst=3)
    assert admitted(limiter, "a", [100.0] * 4) == [True, True, True, False]
    assert admitted(limiter, "a", [100.4, 100.5, 100.9, 101.0]) == [False, True, False, True]
    assert admitted(limiter, "a", [200.0] * 4) == [True, True, True, False]


def test_rate_says_when_to_come_again() -> None:
    """A request that comes at the promised time is admitted, at every distance from the time 0."""
    for start_s in (0.0, 1e3, 1e9):
        limiter = RateLimiter(rate_per_s=10, burst=1)
        now_s = start_s
        for _ in range(1_000):
            assert limiter.wait_s("a", now_s) == 0
            limiter.take("a", now_s)
            wait_s = limiter.wait_s("a", now_s)
            assert wait_s == pytest.approx(0.1, abs=1e-4)
            now_s += wait_s


def test_groups_do_not_share_a_rate() -> None:
    """Each group has its own count."""
    limiter = RateLimiter(rate_per_s=1, burst=1)
    assert admitted(limiter, "a", [5.0, 5.0]) == [True, False]
    assert admitted(limiter, "b", [5.0, 5.0]) == [True, False]


def test_rate_forgets_groups_that_have_rested() -> None:
    """Any number of groups takes bounded memory, and a group under its limit stays limited."""
    limiter = RateLimiter(rate_per_s=1 / 86_400, burst=1)
    for number in range(GROUPS_MAX + 10):
        limiter.take(f"k{number}", 1.0)
    assert len(limiter) <= GROUPS_MAX
    limiter = RateLimiter(rate_per_s=1, burst=1)
    for second in range(10_000):
        limiter.take(f"k{second}", float(second))
    assert len(limiter) <= 1_025
    assert limiter.wait_s("k9999", 9_999.0) > 0


def test_concurrency_counts_requests_under_way() -> None:
    """A released request makes room, and idle groups take no memory."""
    limiter = ConcurrencyLimiter(2)
    limiter.take("a", 0.0)
    limiter.take("a", 0.0)
    assert limiter.wait_s("a", 0.0) > 0
    assert limiter.wait_s("b", 0.0) == 0
    limiter.release("a")
    assert limiter.wait_s("a", 0.0) == 0
    limiter.release("a")
    assert len(limiter) == 0


@pytest.mark.parametrize(
    ("text", "rate_per_s", "burst", "at_once", "per"),
    [
        ("50/s", 50, 50, 0, ""),
        ("60/m burst 5 per principal", 1, 5, 0, "principal"),
        ("3600/h per key", 1, 3_600, 0, "key"),
        ("86400/d", 1, 86_400, 0, ""),
        ("10  at once", 0, 0, 10, ""),
        ("1 at once per key", 0, 0, 1, "key"),
    ],
)
def test_text_of_a_limit(text: str, rate_per_s: float, burst: int, at_once: int, per: str) -> None:
    """Each form of the grammar has its meaning."""
    read = parse_limit(text)
    assert (read.rate_per_s, read.burst, read.at_once, read.per) == (
        rate_per_s,
        burst,
        at_once,
        per,
    )


@pytest.mark.parametrize(
    "text", ["", "50", "50/w", "-1/s", "0/s", "5/s burst 0", "0 at once", "5/s per cat"]
)
def test_wrong_text_is_refused(text: str) -> None:
    """A text that is no limit, or would admit no request, is refused with the forms."""
    with pytest.raises(RequestError, match=r"per key|penstock flow pause"):
        parse_limit(text)


def test_wrong_limits_are_definition_errors() -> None:
    """`App` reports each wrong limit with its place."""

    @limit("often")
    class Wrong(Entity):
        name: str = key()

        @limit("2/s", "3 per day")
        def go(self) -> None: ...

    with pytest.raises(DefinitionError) as caught:
        App("wrong", Wrong)
    assert len(caught.value.complaints) == 2
    assert "test_flow_limits.py:" in caught.value.complaints[0]
    assert "Wrong.go" in caught.value.complaints[1]


def test_setting_names_existing_methods() -> None:
    """The setting is checked against the application, and adds to the declared limits."""
    app = turnstile_app.app
    found = limits_in_force(app, "* 9/s per principal, Gate 5/s , Gate.enter 1 at once per key")
    assert [str(one) for one in found[len(app.limits) :]] == [
        "* 9/s per principal",
        "Gate 5/s",
        "Gate.enter 1 at once per key",
    ]
    for wrong in ("Gat 5/s", "Gate.leave 5/s", "5/s", "open_all 1/s per key"):
        with pytest.raises(ConfigError, match=r"^gateway\.limits: "):
            limits_in_force(app, wrong)


def test_refused_request_is_counted_by_no_limit() -> None:
    """A request that one limit refuses leaves the counts of all other limits as they were."""
    table = LimitTable(parse_limits("* 2 at once, Gate 1/s, Gate.enter 5 at once"))
    caller = Caller("", "Gate", "enter", b"12345678")
    assert isinstance(table.admit(caller, 1.0), tuple)
    assert [table.admit(caller, 1.0) for _ in range(5)] == [
        Excess(parse_limits("Gate 1/s")[0], 1.0)
    ] * 5
    assert isinstance(table.admit(caller, 2.0), tuple)
    refused = table.admit(caller, 3.0)
    assert isinstance(refused, Excess)
    assert str(refused.limit) == "* 2 at once"


def test_gateways_share_a_limit() -> None:
    """Each of several gateways admits its share, at least one request."""
    table = LimitTable(parse_limits("Gate 9/s burst 3, Gate 1 at once"), gateways=3)
    caller = Caller("", "Gate", "enter")
    held = table.admit(caller, 0.0)
    assert isinstance(held, tuple)
    for limiter, group in held:
        limiter.release(group)
    refused = table.admit(caller, 0.0)
    assert isinstance(refused, Excess)
    assert refused.wait_s == pytest.approx(1 / 3)


def test_gateway_answers_429_with_a_time(tmp_path: Path) -> None:
    """Limits per key and per principal count their own requests, and refusals are in the metrics."""
    keys = [KeyStore(tmp_path).add(name, [EVERYTHING], None, utc_now())[1] for name in ("a", "b")]
    with (
        RunningGateway(SPEC, tmp_path, reads=False) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as http,
    ):

        def call(path: str, who: int = 0) -> httpx.Response:
            headers = {"X-API-Key": keys[who]}
            return http.post(
                path, json=[["n", "s"]] if path == "/call/open_all" else [], headers=headers
            )

        assert call("/call/open_all").status_code == 200
        statuses = [call(f"/call/Gate/{name}/enter").status_code for name in "nnnss"]
        assert statuses == [200, 200, 429, 200, 200]
        greetings = [call("/call/Gate/n/greet", who).status_code for who in (0, 0, 0, 0, 1)]
        assert greetings == [200, 200, 200, 429, 200]
        refused = call("/call/Gate/n/enter")
        assert refused.json()["error"]["code"] == "throttled"
        assert "Gate.enter 2/d per key" in refused.json()["error"]["message"]
        assert 43_000 < int(refused.headers["retry-after"]) <= 43_200
        figures = http.get("/metrics", headers={"X-API-Key": keys[0]}).text
    line = r'_refused_total{reason="throttled",target="Gate\.enter 2/d per key"} [1-9]'
    assert re.search(line, figures)


def test_client_gets_a_typed_error(tmp_path: Path) -> None:
    """A client whose time is over before `Retry-After` raises `Throttled` with the seconds."""
    with (
        RunningGateway(SPEC, tmp_path, reads=False) as gateway,
        Client(gateway.url, turnstile_app.app, timeout_s=60) as client,
    ):
        client.open_all(["n"])
        client.Gate("n").enter()
        client.Gate("n").enter()
        with pytest.raises(Throttled) as caught:
            client.Gate("n").enter()
        assert 43_000 < caught.value.retry_after_s <= 43_200


def test_request_is_under_way_until_its_epoch(tmp_path: Path) -> None:
    """A sent request holds its place in the log, also after its answer, until an epoch commits it."""
    settings = GatewayConfig(reply_timeout_ms=60_000)
    with (
        RunningGateway(SPEC, tmp_path, settings, drives=False, reads=False) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as http,
    ):

        def send() -> httpx.Response:
            return http.post("/send/Gate/n/pass_slowly", json=[])

        answers = [send() for _ in range(3)]
        assert [one.status_code for one in answers] == [202, 202, 429]
        assert answers[2].headers["retry-after"] == "1"
        driver = SerialDriver(SPEC, gateway.config)
        driver.start()
        try:
            assert (
                http.get(f"{answers[1].headers['location']}?wait=60").json()["status"] == "answered"
            )
            assert send().status_code == 202
        finally:
            driver.stop()
