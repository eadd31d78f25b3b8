"""`penstock driver` with everything real but Spark: how it stops, and its output meanwhile."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from subprocess import PIPE

import pytest
from rich.console import Console

from penstock.base.ids import BEFORE_FIRST, Lsn, RequestId
from penstock.cli.options import AppOptions
from penstock.cli.running.driver import command as driver_command
from penstock.cli.running.driver_service import abandoned_at_stop, serve
from penstock.errors import ConfigError, OperationalError
from penstock.log.api import Entry
from penstock.process import presence
from penstock.process.config import Config
from penstock.process.reports import ReportReader, ReportWriter
from penstock.process.status import status_of
from penstock.process.stop import Stop
from tests.checkout import SHOP
from tests.serial_driver import SerialDriver
from tests.waiting import wait_for

STOPS = """
import sys
from penstock.process.stop import Stop
with Stop(supervised=sys.argv[1] == "supervised", at_once=lambda: print("at once", flush=True)) as stop:
    print("ready", flush=True)
    stop.wanted.wait()
    print("wanted", flush=True)
    input() if sys.argv[1] == "stuck" else None
"""


@contextmanager
def started(role: str) -> Iterator["subprocess.Popen[str]"]:
    """Start a process that waits for a signal; kill it at the end, if the test has failed."""
    command = [sys.executable, "-c", STOPS, role]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def driver_with_a_request(data: Path) -> SerialDriver:
    driver = SerialDriver(SHOP, Config(data))
    body, hint = driver.app.request("Item", "i1", "create", (), {"price": 3})
    driver.log.append([Entry(RequestId("a"), body, hint, 0)])
    return driver


def test_serving_stops_when_asked(tmp_path: Path) -> None:
    """Requests that were appended before the stop are committed, and the display shows the progress."""
    driver, output = driver_with_a_request(tmp_path), StringIO()

    def end(_: object) -> None:
        wait_for(lambda: "running" in output.getvalue(), "a driver that runs")
        signal.raise_signal(signal.SIGTERM)

    driver.on_epoch.append(end)
    with Stop() as stop:
        serve(driver, SHOP, driver.config, stop, Console(file=output))
    assert output.getvalue().splitlines()[-1] == "stopped"
    assert "running; Ctrl-C stops" in output.getvalue()


def test_start_is_abandoned_at_a_request_to_stop(tmp_path: Path) -> None:
    """Spark takes seconds to start; the error of its early end is not shown, and an error before the request is."""
    driver, output = driver_with_a_request(tmp_path), StringIO()
    abandoned = threading.Event()
    driver.abandon = abandoned.set  # type: ignore[method-assign]
    start = driver.start

    def slow_start() -> None:
        start()  # so that it can stop
        stop.wanted.set()
        assert abandoned.wait(60)
        raise OperationalError("Java has ended")

    driver.start = slow_start  # type: ignore[method-assign]
    stop = Stop()
    serve(driver, SHOP, driver.config, stop, Console(file=output))
    assert output.getvalue() == "stopped\n"
    with (
        pytest.raises(OperationalError, match="no Java"),
        abandoned_at_stop(driver, Stop()),
    ):
        raise OperationalError("no Java")


def test_driver_is_present_and_reports_while_it_serves(tmp_path: Path) -> None:
    """Others find the driver and its epochs from outside; when it has stopped, only the epochs."""
    driver, found = driver_with_a_request(tmp_path), list[presence.Presence]()
    config = Config(tmp_path, cores=2, partitions=4)
    with Stop() as stop:

        def look() -> None:
            found.extend(presence.find(tmp_path, "driver"))
            if found:
                stop.wanted.set()

        driver.check = look  # type: ignore[method-assign]
        serve(driver, SHOP, config, stop, Console(quiet=True))
    assert found[0].details == {"cores": 2}
    assert presence.find(tmp_path, "driver") == []
    assert [one.records for one in ReportReader(tmp_path).after(BEFORE_FIRST)] == [1]


def test_second_driver_is_refused_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two drivers on one directory are told apart at once, by the first one's process id."""
    monkeypatch.chdir(tmp_path)
    with (
        presence.present(tmp_path, "driver", "first"),
        pytest.raises(ConfigError, match=f"process {os.getpid()} runs first"),
    ):
        driver_command(AppOptions(app=[SHOP], data=tmp_path))


def test_standing_names_epoch_rate_and_lag(tmp_path: Path) -> None:
    """Requests that wait in the log count as lag, until their epoch is committed and counts as rate."""
    driver = SerialDriver(SHOP, Config(tmp_path))
    driver.on_epoch.append(ReportWriter(tmp_path).take)
    empty = status_of(tmp_path, driver.log, driver.journal)
    assert str(empty) == "epoch -  0 requests/s  lag 0  last epoch - ms"
    body, hint = driver.app.request("Item", "i1", "create", (), {"price": 3})

    driver.log.append([Entry(RequestId("a"), body, hint, 0)])
    assert status_of(tmp_path, driver.log, driver.journal).lag == 1
    driver.start()
    assert driver.wait_until(Lsn(1), 30_000)
    standing = status_of(tmp_path, driver.log, driver.journal, over_s=60)
    assert (standing.epoch, standing.accepted, standing.lag) == (0, 1, 0)
    assert standing.requests_per_s == 1 / 60
    assert re.match(r"epoch 0 .* lag 0  last epoch \d+ ms", str(standing))
    driver.stop()


@pytest.mark.parametrize("one", [signal.SIGINT, signal.SIGTERM])
def test_signal_asks_to_stop(one: signal.Signals) -> None:
    """The first signal only asks: the process ends in good order."""
    with started("alone") as process:
        process.send_signal(one)
        assert process.communicate(timeout=300)[0] == "wanted\n"
        assert process.returncode == 0


def test_second_signal_ends_at_once() -> None:
    """A second signal ends the process at once, after the steps that must not be left out."""
    with started("stuck") as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == "wanted\n"
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=300)
        assert (out, err) == (
            "at once\n",
            "stopped at once; the next start goes on from the last commit\n",
        )
        assert process.returncode == 130


def test_end_of_input_asks_a_supervised_process_to_stop() -> None:
    """A process whose supervisor is gone ends by itself."""
    with started("supervised") as process:
        assert process.communicate(timeout=300)[0] == "wanted\n"
        assert process.returncode == 0
