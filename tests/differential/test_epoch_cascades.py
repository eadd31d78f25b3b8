"""Cascades through the driver of epochs, with a real log, journal and stores, and without Spark."""

from pathlib import Path

from penstock.log.sqlite import SqliteLog
from tests.differential.inline import Inline
from tests.faults.history import Watch
from tests.faults.load import Flows

RECORDS = 60


def test_epochs_of_cascades_equal_one_thread(tmp_path: Path, seed: int) -> None:
    """Epochs of one task and of several: atoms, replies and state are those of one thread, and nothing is left to do."""
    flows, data = Flows(), tmp_path / "data"
    data.mkdir()
    entries = flows.entries(seed, RECORDS)
    log = SqliteLog(data / "log.sqlite")
    lsns = log.append(entries)
    log.close()
    runtime = Inline(data, 2, flows.spec, flows.app.name, small_epoch=3, epoch_records_max=11)
    reached = None
    while reached != (reached := int(runtime.log.end())):
        runtime.advance(reached)
    tasks = {report.tasks for report, _ in runtime.reports}
    runtime.close()
    assert tasks == {1, 2}, "small epochs run in one task, others in two"
    watch = Watch(flows.app, data, flows.conserved)
    acknowledged = {entry.request_id: lsn for entry, lsn in zip(entries, lsns, strict=True)}
    watch.check(acknowledged, all_answered=True)
    assert len(watch.answers) > len(entries), "cascades have appended records"
