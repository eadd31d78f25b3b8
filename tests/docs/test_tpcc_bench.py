"""The TPC-C benchmark counts what is committed, times both latencies, and finds violations."""

import math
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import tpcc
from benchmarks.harness.latencies import Timed, percentiles_ms
from benchmarks.tpcc_company import Checked, Company, Done
from examples.tpcc.nurand import Scale
from examples.tpcc.terminal import Kind
from tests.gateway_thread import RunningGateway

SMALL = Scale(items=60, customers=30)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    """A gateway of the company, with a view in a process of its own."""
    data = tmp_path / "data"
    command = [
        sys.executable,
        "-P",
        "-m",
        "penstock",
        "view",
        "serve",
        tpcc.APP,
        "--data",
        str(data),
    ]
    with RunningGateway(tpcc.APP, data) as gateway, subprocess.Popen(command) as view:
        yield gateway
        view.terminate()


def test_terminals_work_through_a_gateway(gateway: RunningGateway) -> None:
    """Transactions succeed or are rolled back by intent, accepted before committed; the conditions hold."""
    company = Company(gateway.config.gateway.port, 1, SMALL)
    company.populate()
    company.run(10, 1.0, waits=False)
    company.run(10, 4.0, waits=False, check_s=1.0)
    last = company.check()
    assert [one for one in company.done if not one.is_right] == []
    for one in company.done:
        timed = one.timed
        assert math.isnan(timed.accepted_s) or 0 < timed.accepted_s < timed.committed_s
    assert [one.violations for one in company.checked] == [{}] * len(company.checked)
    assert (last.during, company.checked[-1]) == (False, last)
    figures = tpcc.figures_of(company.done, company.checked, 600.0)
    assert figures["transactions"]["payment"]["count"] > 0
    assert (figures["failures"], figures["violations"]) == (0, 0)


def done(kind: Kind, end_s: float, *, error: str = "", rolls_back: bool = False) -> Done:
    return Done(kind, rolls_back, Timed(100.0 + end_s - 0.5, 0.1, 0.5, error))


def test_rate_has_committed_new_orders_only() -> None:
    """Rolled back, failed and late orders, and other transactions, are not New-Orders of the rate."""
    some = [
        done("payment", 0.5),
        done("new-order", 1.0),
        done("new-order", 1.2),
        done("new-order", 2.0, error="unused-item: Item number is not valid", rolls_back=True),
        done("new-order", 2.0, error="500: broken"),
        done("new-order", 10.5),
    ]
    found = tpcc.figures_of(some, [Checked(7, {3: 2}, 0.1, during=True)], 10.0)
    assert found["new_orders_per_minute"] == 12
    assert found["transactions_per_s"] == 0.4
    assert (found["failures"], found["failure_examples"]) == (1, ["500: broken"])
    assert found["violations"] == 1
    assert found["new_orders_by_second"][:3] == [0, 2, 0]
    assert found["transactions"]["new-order"]["rolled_back"] == 1
    assert found["transactions"]["delivery"]["accepted_ms"] == {
        "p50": None,
        "p90": None,
        "p99": None,
    }


def test_rollback_that_succeeds_is_a_failure() -> None:
    """An order with an unused item that is committed is wrong."""
    assert not done("new-order", 1.0, rolls_back=True).is_right
    assert not done("new-order", 1.0, rolls_back=True, error="internal: x").is_right


def test_reads_have_no_accepted_latency() -> None:
    """A read is not in the log; percentiles leave it out."""
    assert percentiles_ms([math.nan, 0.002, 0.002]) == {"p50": 2.0, "p90": 2.0, "p99": 2.0}
    assert percentiles_ms([math.nan])["p50"] is None


@pytest.mark.parametrize(
    ("full", "text"), [(True, "the full scale"), (False, "NOT the full scale")]
)
def test_report_names_the_scale(full: object, text: str) -> None:
    """A smaller database is named in the report, and the report says that the result is not audited."""
    settings = {"warehouses": 1, "terminals": 10, "keying_and_think_times": False}
    scale = {"full_scale": full, "items": 60, "customers_per_district": 30}
    said = tpcc.report(tpcc.figures_of([], [], 1.0) | settings | scale)
    assert text in said
    assert "not audited" in said
    assert "without keying and think times" in said


def test_commands_of_the_readme_are_accepted() -> None:
    """Each command of the example's README has options that the benchmark takes."""
    text = (Path(tpcc.APP) / "README.md").read_text()
    commands = [line for line in text.splitlines() if line.startswith("python -m benchmarks.tpcc")]
    assert len(commands) == 2
    for command in commands:
        assert tpcc.options(shlex.split(command)[3:]).seconds > 0
