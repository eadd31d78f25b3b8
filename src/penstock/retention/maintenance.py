"""Maintenance: snapshots, compaction, forgetting and former stores, in a process of low priority.

    python -m penstock.retention.maintenance < work > done

It reads and writes files only, so it may run with or without a driver. One process at a time
maintains a data directory. If it is killed at any point, nothing that is needed is lost, and the next
run goes on. It writes its report, with all leases, to `run/maintenance.json`.
"""

import dataclasses
import logging
import time
from contextlib import closing
from typing import Final

import msgspec
import pyarrow as pa

from penstock.base.ids import BEFORE_FIRST, Epoch, Lsn
from penstock.deployment.deploy_order import waiting_code
from penstock.deployment.deployment_start import remove_surplus_archives
from penstock.deployment.isolated_upcasts import isolated_upcasts
from penstock.deployment.loading import load_app
from penstock.errors import Corrupt, PenstockError
from penstock.files import durable
from penstock.files.durable import storage
from penstock.files.layout import RUN, STATE
from penstock.files.roots import snapshots_root
from penstock.journal.api import DEFAULT_COMPACTION, CompactionPolicy, Journal, StepObserver
from penstock.journal.staged import StagedRows
from penstock.log.clock import wall_clock_us
from penstock.model.application import App
from penstock.model.control import files_of
from penstock.orders.order import waiting_controls
from penstock.process import logs
from penstock.process.clock_jumps import clock_jumps
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.fault import Fault
from penstock.process.question import encode_question, receive_question
from penstock.retention import retention
from penstock.retention.maintenance_report import REPORT, MaintenanceReport, last_report
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.snapshot_writer import (
    remove_snapshots,
    snapshot_lock,
    write_next_snapshot,
)
from penstock.state.stores import remove_former_stores

_log = logging.getLogger(__name__)

_STAGED_S: Final = 86_400.0
"""How long the rows of an import stay that no record in the log names: the order may still read its source."""


class MaintenanceWork(msgspec.Struct, frozen=True):
    """The task of a maintenance process.

    Attributes:
        spec: The application, as on the command line.
        snapshot: Whether to take a snapshot first.
    """

    spec: str
    config: Config
    snapshot: bool


def encode_work(spec: str, config: Config, *, snapshot: bool) -> bytes:
    """Return the encoded task of a maintenance process."""
    absolute = dataclasses.replace(config, data=config.data.absolute())
    return encode_question(MaintenanceWork(spec, absolute, snapshot))


def maintain(app: App, config: Config, *, snapshot: bool, wait: bool = False) -> MaintenanceReport:
    """Take a snapshot if asked to, merge epochs, forget epochs, delete former stores, and report.

    Args:
        wait: Whether to wait for another process that maintains the directory.

    Returns:
        The report, which is also written to the data directory.
    """
    began = time.perf_counter()
    reached: StepObserver = Fault(config.fault).reached
    with closing(DataDirectory(config.data).open_journal(app)) as journal:
        snapshots = Snapshots(snapshots_root(config.data), journal.identity)
        with snapshot_lock(snapshots, wait=wait) as mine:
            if not mine:
                return last_report(config.data) or MaintenanceReport()
            if snapshot:
                with isolated_upcasts():
                    _take_all(app, journal, snapshots, reached)
            merged = journal.compact(compaction_policy(config), reached)
            verdict = _forget(config, journal, snapshots, reached)
            log_start = _truncate(config, journal, reached)
            _remove_former_stores(config, journal)
            newest = snapshots.newest()
            done = MaintenanceReport(
                time_us=wall_clock_us(),
                snapshot=BEFORE_FIRST if newest is None else newest.epoch,
                rows=0 if newest is None else newest.rows,
                snapshots=snapshots.epochs(),
                merged=merged.epochs,
                first=journal.first(),
                wanted=verdict.wanted,
                holders=list(verdict.holders),
                log_start=log_start,
                spent_s=time.perf_counter() - began,
            )
        with durable.storage("report on maintenance"):
            (config.data / RUN).mkdir(exist_ok=True)
            durable.replace(config.data / RUN / REPORT, msgspec.json.encode(done))
        return done


def compaction_policy(config: Config) -> CompactionPolicy:
    """Return how the journal is compacted."""
    history = config.history
    return DEFAULT_COMPACTION._replace(epochs=history.merge_epochs, grace_s=history.grace_s)


def _take_all(app: App, journal: Journal, snapshots: Snapshots, reached: StepObserver) -> None:
    """Take snapshots until the newest epoch has one; a damaged one is set aside."""
    last = journal.last()
    if last is None:
        return

    while True:
        base = snapshots.newest()
        try:
            if write_next_snapshot(app, journal, snapshots, last.epoch, reached) is None:
                return
        except Corrupt as error:
            if base is None or snapshots.whole(base):
                raise
            _log.warning("a damaged snapshot is set aside", extra={"cause": str(error)})
            snapshots.set_aside(base.epoch)


def _forget(
    config: Config, journal: Journal, snapshots: Snapshots, reached: StepObserver
) -> retention.RetentionDecision:
    """Remove old epochs that no lease keeps, and surplus snapshots and source archives."""
    # Nothing brings a forgotten epoch back, so no age is longer than it is without the jumps of the clock.
    now_us = wall_clock_us() - clock_jumps(config.data).ahead_s * 1_000_000
    verdict = retention.decide(config, journal, snapshots, now_us)
    if verdict.base is not None:
        journal.forget(Epoch(verdict.base + 1), reached)
    most = config.history.snapshots_max
    remove_snapshots(
        snapshots, retention.surplus_snapshots(snapshots.epochs(), most, journal.first())
    )
    reached("snapshots-thinned")
    remove_surplus_archives(config.data, journal, lambda: _waiting_archives(config, journal))
    with storage("remove the rows of imports"):
        StagedRows(config.data).remove_others(_waiting_rows(config, journal), _STAGED_S)
    return verdict


def _waiting_rows(config: Config, journal: Journal) -> set[str]:
    """Return the staged files of the orders that wait in the log."""
    directory = DataDirectory(config.data)
    if not directory.log_path.exists():
        return set()
    with closing(directory.open_log(config)) as log:
        return {name for each in waiting_controls(journal, log) for name in files_of(each)}


def _waiting_archives(config: Config, journal: Journal) -> list[str]:
    """Return the archives of the deployments that wait in the log."""
    directory = DataDirectory(config.data)
    if not directory.log_path.exists():
        return []
    with closing(directory.open_log(config)) as log:
        return [code.archive for code in waiting_code(journal, log)]


def _truncate(config: Config, journal: Journal, reached: StepObserver) -> Lsn:
    """Forget the log's records of merged epochs, which are final; return the log's new start."""
    directory = DataDirectory(config.data)
    if not directory.log_path.exists():
        return Lsn(0)
    with closing(directory.open_log(config)) as log:
        for commit in journal.commits(Epoch(journal.merged() - 1), journal.merged()):
            for partition, position in commit.positions.items():
                log.truncate(position, partition)
        reached("log-truncated")
        directory.keep_log_copy(log)
        return log.start()


def _remove_former_stores(config: Config, journal: Journal) -> None:
    """Delete the stores of a former number of partitions, if no process has them open."""
    last = journal.last()
    if last is not None and last.partitions:
        removed = remove_former_stores(config.data / STATE, last.partitions)
        if removed:
            _log.info("former stores are deleted", extra={"stores": len(removed)})


def main() -> None:
    """Do the task on standard input, and write the report to standard output."""
    work, answer_file = receive_question(MaintenanceWork)
    config = work.config
    logs.configure("maintenance", config.log_format, config.log_level)
    pa.set_cpu_count(1)  # it takes its time, on one core
    try:
        done = maintain(load_app(work.spec), config, snapshot=work.snapshot)
    except PenstockError as error:
        _log.exception("maintenance has failed")
        done = MaintenanceReport(failure=f"{error.code}: {error}")
    with answer_file:
        answer_file.write(msgspec.json.encode(done))


if __name__ == "__main__":
    main()
