"""A workflow that subscribes late, through the driver of epochs: crashes at each step give no atom twice, and lose none."""

from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import RequestId
from penstock.deployment.loading import load_app
from penstock.engine.limits import Limits
from penstock.history.code_versions import CodeVersions
from penstock.history.reader import HistoryReader
from penstock.history.replay import replay
from penstock.log.api import Entry
from penstock.model.application import App
from penstock.process.data_directory import DataDirectory
from penstock.runtime.spark.quarantine import PART_OF, STEPS_OF
from tests.differential.committed import answers_of, streams_of
from tests.differential.inline import Inline
from tests.streams.late_app import after, before

SPEC = "tests.streams.late_app:"
ATOMS = [[1, 2], [3], [-4], [5], [6]]


class Crash(BaseException):
    """Ends the driver where it is."""


def started(data: Path, version: str, small_epoch: int = 3) -> Inline:
    """Start a driver with a version of the application, as `SparkRuntime` does."""
    app = load_app(SPEC + version)
    runtime = Inline(
        data, 2, SPEC + version, app.name, small_epoch=small_epoch, epoch_records_max=3
    )
    begin(runtime, app)
    return runtime


def begin(runtime: Inline, app: App) -> None:
    """Let the driver append what the log lacks, as at a start."""
    runtime.driver.recover(app).result()
    runtime.driver.append_later()


def append(runtime: Inline, first: int, atoms: list[list[int]]) -> None:
    runtime.log.append(
        [
            Entry(RequestId(f"a{number}"), before.append("numbers", atom), b"", number)
            for number, atom in enumerate(atoms, first)
        ]
    )


def finish(runtime: Inline) -> None:
    """Process the log until no record is left."""
    reached = None
    while reached != (reached := int(runtime.log.end())):
        runtime.advance(reached)


def events_of(streams: dict[str, list[Any]], name: str) -> list[list[int]]:
    declared = after.topology.streams[name]
    return [[declared.events.decode(data) for data in atom] for atom in streams.get(name, [])]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data directory with a history of the former version."""
    data = tmp_path / "data"
    data.mkdir()
    runtime = started(data, "before")
    append(runtime, 0, ATOMS)
    finish(runtime)
    runtime.close()
    return data


def check(data: Path) -> None:
    """Each atom has come to the late workflow once, in order; a replay finds the same."""
    journal = DataDirectory(data).open_journal(after)
    streams = streams_of(journal)
    answers = answers_of(journal)
    journal.close()
    assert events_of(streams, "late-totals") == events_of(streams, "early-totals")
    assert len(streams["late-failed"]) == 1
    assert len({answer.request_id for answer in answers}) == len(answers)


@pytest.mark.parametrize("crash", ["never", "record", "commit", "piece", "size", "state"])
def test_each_atom_comes_once(crash: str, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver ends before the record, between commit and piece, between two pieces, or without its state."""
    monkeypatch.setattr("penstock.model.catch_up.PIECE_ATOMS", 2)
    runtime = started(data, "after")
    append(runtime, 10, [[10], [11]])
    if crash == "record":
        runtime.restart()
        begin(runtime, after)
    elif crash == "commit":
        monkeypatch.setattr(runtime.driver.late, "append", lambda: (_ for _ in ()).throw(Crash()))
        with pytest.raises(Crash):
            runtime.advance(int(runtime.log.end()))
        runtime.close()
        runtime = started(data, "after")
    else:
        runtime.advance(int(runtime.log.end()))
        runtime.close()
        if crash == "size":  # the piece that waits in the log was filled by another version
            monkeypatch.setattr("penstock.model.catch_up.PIECE_ATOMS", 1)
        if crash == "state":
            for store in (data / "state").rglob("*.mdb"):
                store.unlink()
        runtime = started(data, "after")
    append(runtime, 20, [[20], [21]])
    finish(runtime)
    append(runtime, 30, [[30]])
    finish(runtime)
    runtime.close()
    check(data)


def test_workflow_that_comes_back_goes_on(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollback in the middle of the catch-up stops it; the next deployment continues it."""
    monkeypatch.setattr("penstock.model.catch_up.PIECE_ATOMS", 2)
    runtime = started(data, "after")
    runtime.advance(int(runtime.log.end()))
    for version in ("before", "after"):  # the next piece waits in the log
        runtime.close()
        runtime = started(data, version)
        finish(runtime)
    append(runtime, 10, [[10], [11]])
    finish(runtime)
    runtime.close()
    check(data)


def test_catch_up_in_epochs_of_several_tasks(data: Path) -> None:
    """A catch-up record whose workflow steps run in the second pass of an epoch gives its atoms, too."""
    runtime = started(data, "after", small_epoch=0)
    append(runtime, 10, [[10], [11]])
    finish(runtime)
    runtime.close()
    check(data)


def test_an_earlier_atom_that_kills_its_worker_is_set_aside_alone(data: Path) -> None:
    """After two deaths with one atom of a catch-up record, the workflow takes the atoms before and behind it."""
    runtime = started(data, "after")
    runtime.advance(int(runtime.log.end()))
    last = runtime.journal.last()
    assert last is not None
    scratch = max(data.glob("scratch-*"), key=lambda folder: folder.stat().st_mtime_ns)
    noted = STEPS_OF + 2 * PART_OF  # the second step of the record of the next epoch
    (scratch / f"e{last.epoch + 1}-r1-t0.deaths").write_text(f"{noted} {noted}")
    finish(runtime)
    streams = streams_of(runtime.journal)
    runtime.close()
    assert events_of(streams, "late-totals") == [[1, 3], [8], [14]]
    assert ["quarantined" in str(atom) for atom in streams["late-failed"]] == [True, False]


def test_replay_and_repeated_starts(data: Path) -> None:
    """A replay catches up from the records alone; a further start subscribes nothing again."""
    runtime = started(data, "after")
    finish(runtime)
    records = int(runtime.log.end())
    begin(runtime, after)
    assert int(runtime.log.end()) == records
    runtime.close()
    check(data)
    with (
        HistoryReader(data, after) as past,
        CodeVersions(past, after, SPEC + "after", present_only=True) as versions,
    ):
        replayed = replay(past, versions, Limits(), past.span(None, None), lambda *_: None)
    assert replayed.divergence is None
