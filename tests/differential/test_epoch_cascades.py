"""Cascades through the driver of epochs, with a real log, journal and stores, and without Spark."""

from pathlib import Path

import pytest

from penstock.base.ids import RequestId
from penstock.engine.limits import Limits
from penstock.errors import LimitExceeded
from penstock.history.code_versions import CodeVersions
from penstock.history.reader import HistoryReader
from penstock.history.replay import replay
from penstock.log.api import Entry
from penstock.log.sqlite import SqliteLog
from penstock.runtime.spark.quarantine import STEPS_OF
from tests.differential.committed import answers_of, streams_of
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


@pytest.mark.parametrize(("small_epoch", "task"), [(0, "e0-steps"), (100, "e0-r1-t0")])
def test_steps_that_kill_their_worker_are_refused(
    tmp_path: Path, small_epoch: int, task: str
) -> None:
    """After two deaths in the workflow steps of a record, its atom is set aside; its request and all others stand."""
    flows = Flows()
    bodies = [flows.app.append("moved", [(name, 5)]) for name in ("a", "b", "c")]
    log = SqliteLog(tmp_path / "log.sqlite")
    log.append([Entry(RequestId(f"r{n}"), body, b"", n) for n, body in enumerate(bodies)])
    log.close()
    runtime = Inline(tmp_path, 2, flows.spec, flows.app.name, small_epoch=small_epoch)
    (scratch,) = tmp_path.glob("scratch-*")
    (scratch / f"{task}.deaths").write_text(f"{1 + STEPS_OF} {1 + STEPS_OF}")
    runtime.advance(3)
    streams, answers = streams_of(runtime.journal), answers_of(runtime.journal)
    [(report, _)] = runtime.reports
    runtime.close()
    assert report.calls[">streams/moved"] == report.atoms["moved"] == report.events["moved"] == 3
    assert [answer.error for answer in answers] == [None] * 3
    assert len(streams["moved"]) == 3
    assert len(streams["totals"]) == 2
    ((failed,),) = streams["totals-failed"]
    assert b"quarantined" in failed
    with (
        HistoryReader(tmp_path, flows.app) as history,
        CodeVersions(history, flows.app, flows.spec) as versions,
    ):
        span = history.span(None, None)
        replayed = replay(history, versions, Limits(), span, lambda *_: None)
        (recorded,) = history.epochs(*span)
    assert replayed.divergence is None, "a replay does not run the step"
    (cascade,) = [recorded.cascade(row) for row in recorded.rows if recorded.cascade(row).sent]
    assert [(sent.request_id, sent.error) for sent in cascade.sent] == [
        ("r1~~s1", LimitExceeded.code)
    ]
