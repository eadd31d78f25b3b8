"""Cascades through the driver of epochs, with a real log, journal and stores, and without Spark."""

import math
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
from penstock.runtime.spark import parallelism
from penstock.runtime.spark.messages import RunSteps
from penstock.runtime.spark.quarantine import PART_OF, STEPS_OF
from tests.differential.committed import answers_of, streams_of
from tests.differential.inline import Inline
from tests.faults.history import Watch
from tests.faults.load import Flows

RECORDS = 60


@pytest.mark.parametrize("overlapped", [False, True])
def test_epochs_of_cascades_equal_one_thread(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch, *, overlapped: bool
) -> None:
    """Epochs of one task, of several, and of two passes at once: atoms, replies and state are those of one thread, and nothing is left to do."""
    # No measured time decides.
    monkeypatch.setattr(parallelism, "OVERLAP_SAVES_MS", -math.inf if overlapped else math.inf)
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
    orders = [order for order in runtime._jobs.taken if isinstance(order, RunSteps)]
    relays, lost = [order.relay for order in orders if order.relay], runtime._jobs.lost
    runtime.close()
    if overlapped:
        assert len(relays) > lost > 0, (
            "steps have run after requests, and after those of a second attempt"
        )
    else:
        assert (tasks, relays) == ({1, 2}, []), "small epochs run in one task, others in two"
    watch = Watch(flows.app, data, flows.conserved)
    acknowledged = {entry.request_id: lsn for entry, lsn in zip(entries, lsns, strict=True)}
    watch.check(acknowledged, all_answered=True)
    assert len(watch.answers) > len(entries), "cascades have appended records"


def with_deaths(data: Path, bodies: list[bytes], small_epoch: int, task: str, noted: int) -> Inline:
    """Process records in one epoch; a worker has died twice at a noted place."""
    flows = Flows()
    log = SqliteLog(data / "log.sqlite")
    log.append([Entry(RequestId(f"r{n}"), body, b"", n) for n, body in enumerate(bodies)])
    log.close()
    runtime = Inline(data, 2, flows.spec, flows.app.name, small_epoch=small_epoch)
    (scratch,) = data.glob("scratch-*")
    (scratch / f"{task}.deaths").write_text(f"{noted} {noted}")
    runtime.advance(len(bodies))
    return runtime


def refused_in(data: Path) -> list[tuple[str, str | None]]:
    """Return what was refused; a replay takes the recorded outcomes."""
    flows = Flows()
    with (
        HistoryReader(data, flows.app) as history,
        CodeVersions(history, flows.app, flows.spec) as versions,
    ):
        span = history.span(None, None)
        replayed = replay(history, versions, Limits(), span, lambda *_: None)
        recorded = list(history.epochs(*span))
    assert replayed.divergence is None, "a replay does not run what was refused"
    return [
        (sent.request_id, sent.error)
        for epoch in recorded
        for row in epoch.rows
        for sent in epoch.cascade(row).sent
        if sent.error == LimitExceeded.code
    ]


@pytest.mark.parametrize("saves_ms", [math.inf, -math.inf], ids=["in-turn", "overlapped"])
@pytest.mark.parametrize(("small_epoch", "task"), [(0, "e0-steps"), (100, "e0-r1-t0")])
def test_a_step_that_kills_its_worker_is_refused(
    tmp_path: Path, small_epoch: int, task: str, saves_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After two deaths in a workflow step, its atom is set aside; its request, and all other steps, stand."""
    monkeypatch.setattr(parallelism, "OVERLAP_SAVES_MS", saves_ms)
    bodies = [Flows().app.append("moved", [(name, 5)]) for name in ("a", "b", "c")]
    noted = 1 + STEPS_OF + PART_OF
    runtime = with_deaths(tmp_path, bodies, small_epoch, task, noted)
    streams, answers = streams_of(runtime.journal), answers_of(runtime.journal)
    [(report, _)] = runtime.reports
    runtime.close()
    assert report.calls[">streams/moved"] == report.atoms["moved"] == report.events["moved"] == 3
    assert [answer.error for answer in answers] == [None] * 3
    assert (len(streams["moved"]), len(streams["totals"])) == (3, 2)
    ((failed,),) = streams["totals-failed"]
    assert b"quarantined" in failed
    assert refused_in(tmp_path) == [("r1~~s1", LimitExceeded.code)]


def test_other_steps_of_the_record_run(tmp_path: Path) -> None:
    """One of the workflows that take an atom kills its worker; the others take the atom."""
    runtime = with_deaths(
        tmp_path, [Flows().app.append("numbers", [4])], 100, "e0-r1-t0", STEPS_OF + 2 * PART_OF
    )
    streams = streams_of(runtime.journal)
    runtime.close()
    failed = [name for name in streams if name.endswith("-failed")]
    assert failed == ["asking-failed"]
    assert {"shelved", "less"} <= streams.keys(), "steps before it and behind it have run"


def test_a_sent_request_that_kills_its_worker_fails_alone(tmp_path: Path) -> None:
    """After two deaths in a sent request, its sender stands, and so do the requests that were sent beside it."""
    flows = Flows()
    create = [flows.app.request("Account", name, "create", (), {})[0] for name in ("a", "b")]
    passing = flows.app.request(
        "Account", "a", "pass_on", (flows.app.entities["Account"].of_text("b"), 1), {}
    )[0]
    noted = 2 + PART_OF
    runtime = with_deaths(tmp_path, [*create, passing], 100, "e0-r1-t0", noted)
    answers = answers_of(runtime.journal)
    runtime.close()
    assert [answer.error for answer in answers] == [None] * 3
    assert refused_in(tmp_path) == [("r2~~1", LimitExceeded.code)]
