"""The maintenance of history during epochs, by Spark jobs that no epoch waits for."""

import logging
import shutil
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable

from penstock.base.ids import Lsn
from penstock.process.config import Config, HistoryConfig
from penstock.retention.maintenance import maintain
from penstock.retention.maintenance_process import MODULE
from penstock.retention.maintenance_report import last_report
from penstock.runtime.spark.runtime import SparkRuntime
from penstock.state.digest import digest_of_mapping
from tests.differential.committed import digest_of_stores, state_of
from tests.faults.load import Bank
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.turns(
        1, "retention", "snapshots", "runtime", "state", "journal", of="maintenance beside epochs"
    ),
]

DEADLINE_MS = 120_000
PATIENCE_S = 60.0
BANK = Bank()


def config_of(data: Path, fault: str = "") -> Config:
    history = HistoryConfig(snapshot_epochs=3, grace_s=0, nice=0)
    return Config(data, cores=2, epoch_records_max=150, history=history, fault=fault)


def test_snapshots_are_taken_beside_epochs_and_recovered_from(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Snapshots appear while epochs go on; the death of their process stops nothing; and a run that
    has lost its local state begins with the newest one."""
    data = tmp_path / "data"
    runtime = SparkRuntime(BANK.spec, config_of(data, fault="snapshot-published@1"))
    runtime.start()
    end = Lsn(runtime.log.append(BANK.entries(seed=5, count=1_500))[-1] + 1)
    assert runtime.wait_until(end, DEADLINE_MS)
    wait_for(
        lambda: "maintenance died" in caplog.text, "a death of the process that takes a snapshot"
    )
    end = Lsn(runtime.log.append(BANK.entries(seed=6, count=600))[-1] + 1)
    assert runtime.wait_until(end, DEADLINE_MS)
    runtime.stop()
    assert last_report(data) is None

    assert maintain(BANK.app, config_of(data), snapshot=True).snapshot > 0
    shutil.rmtree(data / "state")
    runtime = SparkRuntime(BANK.spec, config_of(data))
    with caplog.at_level(logging.INFO):
        runtime.start()
    assert "state is ready" in caplog.text
    assert digest_of_stores(config_of(data), runtime.journal) == digest_of_mapping(
        state_of(runtime.journal)
    )
    first = last_report(data)
    assert first is not None
    end = Lsn(runtime.log.append(BANK.entries(seed=7, count=1_500))[-1] + 1)
    assert runtime.wait_until(end, DEADLINE_MS)
    wait_for(lambda: len((last_report(data) or first).snapshots) > 1, "another snapshot")
    runtime.stop()
    accounts = DeltaTable(str(data / "snapshots" / "Account")).to_pyarrow_table()
    assert accounts.num_rows > 0


def test_stop_does_not_wait_for_maintenance(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A process that takes a snapshot when the driver stops is ended, without a traceback."""
    runtime = SparkRuntime(BANK.spec, config_of(tmp_path / "data"))
    runtime.start()
    end = Lsn(runtime.log.append(BANK.entries(seed=5, count=900))[-1] + 1)
    assert runtime.wait_until(end, DEADLINE_MS)
    process = wait_for(suspended, "a process that takes a snapshot", look_s=0.001)
    began = time.monotonic()
    runtime.stop()
    assert time.monotonic() - began < PATIENCE_S
    assert not process.is_running()
    assert "Traceback" not in capfd.readouterr().err


def suspended() -> psutil.Process | None:
    """Suspend a process that maintains history; return None if there is none, or it has ended."""
    for process in maintenance_processes():
        with suppress(psutil.NoSuchProcess):
            process.suspend()
            return process
    return None


def maintenance_processes() -> list[psutil.Process]:
    """Return the processes below this process that maintain history."""
    found = []
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if MODULE in one.cmdline():
                found.append(one)
    return found
