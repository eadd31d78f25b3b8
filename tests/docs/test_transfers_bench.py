"""The benchmark of transfers counts what its clients have seen, and notices wrong balances."""

from collections import Counter
from itertools import islice

import pytest

from benchmarks import transfers
from benchmarks.harness import transfer
from benchmarks.harness.latencies import Timed
from benchmarks.transfers import Case, Transfers
from penstock import AsyncClient


def test_transfers_are_drawn_by_their_exponent() -> None:
    """With 1.5 a few accounts take most transfers; source and target differ; a seed repeats them."""

    def drawn(alpha: float) -> list[tuple[str, bytes]]:
        some = islice(Transfers(1_000, alpha, seed=3).requests("t"), 5_000)
        return [(request.path, request.body) for request in some]

    assert drawn(1.5) == drawn(1.5)
    hottest = {
        alpha: Counter(path for path, _ in drawn(alpha)).most_common(1)[0][1] for alpha in (0, 1.5)
    }
    assert hottest[0] < 50
    assert hottest[1.5] > 1_000
    for path, body in drawn(1.5):
        assert path.split("/")[3] != body.split(b'"')[1].decode()


def test_clients_of_both_kinds_send_the_same_transfers() -> None:
    """The requests over HTTP and the calls of pipelines name the same accounts."""
    client = AsyncClient("http://127.0.0.1:1", transfer.app)
    requests = islice(Transfers(1_000, 1.5, seed=3).requests("t"), 500)
    calls = islice(Transfers(1_000, 1.5, seed=3).calls("t", client), 500)
    by_request = [(one.request_id, one.path.split("/")[3], one.body) for one in requests]
    by_call = [
        (one.request_id, one.key, b'["%s",1]' % one.positional[0].number.encode()) for one in calls
    ]
    assert by_request == by_call


def test_expected_balances_add_up() -> None:
    """What one account loses another one gains."""
    some = Transfers(100, 0.0, seed=1)
    list(islice(some.requests("t"), 500))
    moved = some.moved()
    assert sum(moved.values()) == 0
    assert sum(map(abs, moved.values())) > 0


def timed(end_s: float, error: str = "") -> Timed:
    return Timed(1_000.0 + end_s - 0.25, 0.125, 0.25, error)


def test_rate_is_the_mean_of_whole_seconds_with_its_deviation() -> None:
    """A transfer belongs to the second of its reply; failures and later replies do not count in the rate."""
    some = [timed(0.5), timed(0.75), timed(0.75), timed(1.5), timed(1.6, "internal: x"), timed(2.5)]
    found = transfers.figures_of(Case(0.0, 2, 1), some, began_s=1_000.0, seconds=2.0)
    assert found["by_second"] == [3, 1]
    assert found["transfers_per_s"] == 2.0
    assert found["deviation_per_s"] == pytest.approx(1.4)
    assert (found["transfers"], found["failures"]) == (5, 1)
    assert found["accepted_ms"]["p50"] == 125.0
    assert found["committed_ms"]["p50"] == 250.0
    assert found["kind"] == "sequential"


def test_report_has_both_latencies() -> None:
    """Each row shows the accepted and the committed latency, and failures."""
    row = transfers.figures_of(Case(1.5, 2, 40), [timed(0.5, "internal: broken")], 1_000.0, 1.0)
    said = transfers.report({"accounts": 10, "rows": [row | {"complaints": ["money is missing"]}]})
    for text in ("accepted p50", "committed p99", "pipelined", "money is missing", "broken"):
        assert text in said
