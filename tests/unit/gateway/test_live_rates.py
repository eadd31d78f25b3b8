"""The rates of a running application, on its graph, in its status and in its metrics."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock.base.ids import Epoch, RequestId
from penstock.cli.main import execute
from penstock.log.api import Entry
from penstock.model.call import append_of, encoded
from penstock.process.epoch_report import EpochReport
from penstock.process.reports import ReportWriter
from tests.differential.inline import Inline
from tests.differential.pausing_app import FORBIDDEN, SPEC, app, numbers
from tests.gateway_thread import RunningGateway


def report() -> EpochReport:
    return EpochReport(
        epoch=Epoch(2),
        time_us=time.time_ns() // 1_000 + 60_000_000,  # recent for the whole test
        records=3,
        aborts=0,
        rounds=1,
        reran=0,
        tasks=1,
        phases_ms={"commit": 1.0},
        calls={">Till.add": 100},
        atoms={"numbers": 3},
        events={"numbers": 200},
    )


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """The workflow `total` is paused, and holds two atoms."""
    FORBIDDEN.clear()
    FORBIDDEN.add(0)
    data = tmp_path / "data"
    data.mkdir()
    driver = Inline(data, 1, SPEC, app.name)
    for number in (1, 0, 2):
        body, hint = encoded(app, append_of(numbers, [number]))
        driver.log.append([Entry(RequestId(f"n{number}"), body, hint, number)])
    driver.advance(int(driver.log.end()))
    ReportWriter(data).take(report())
    yield data
    driver.close()


def test_rates_and_lags_are_shown(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A paused workflow lags by the atoms that it holds; streams show events in a second, also on their edges."""

    def told(*words: str) -> str:
        execute([*words, "--url", gateway.url])
        printed = capsys.readouterr()
        return printed.out + " ".join(printed.err.split())

    with RunningGateway(SPEC, data, drives=False, reads=False) as gateway:
        lines = told("explain", SPEC).splitlines()
        assert any("workflow total" in line and "[2 atoms behind]" in line for line in lines)
        assert sum("stream numbers" in line and "[40 events/s]" in line for line in lines) == 1
        assert any("feeds" in line and "[40 events/s]" in line for line in lines)
        assert any("add(" in line and "[20 calls from outside/s]" in line for line in lines)
        rates = json.loads(told("explain", SPEC, "--json"))["rates"]
        assert rates["events"] == {"numbers": 40.0}
        assert (rates["calls"], rates["lags"]["total"]) == ({">Till.add": 20.0}, 2)
        assert "40 events/s" in told("explain", SPEC, "--format", "mermaid")
        shown = told("status")
        assert "stream numbers: 40 events/s" in shown
        assert "workflow total: 2 atoms behind" in shown
        text = httpx.get(f"{gateway.url}/metrics").text
        assert 'penstock_workflow_lag_atoms{workflow="total"} 2.0' in text
        assert "serves the application pausing" in told("explain", "examples/shop")
