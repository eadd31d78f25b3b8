"""Later records through the driver of epochs: each is processed, whatever its size, also if it fails."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import pytest

from penstock.base.ids import Epoch, Lsn, RequestId
from penstock.engine.limits import Limits
from penstock.journal.api import PartKind
from penstock.log.api import Entry
from penstock.runtime.spark.messages import RunTransactions, TaskCommand, TaskResult
from tests.differential.inline import ONLY, Inline, InlineJobs
from tests.differential.later_app import LARGE, app

SPEC = "tests.differential.later_app:app"
NAMES = ("second", "third", "fourth")


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Inline]:
    made = Inline(tmp_path, 1, SPEC, app.name, small_epoch=100)
    yield made
    made.close()


def run(runtime: Inline) -> None:
    """Process the log until nothing is left, not even what is scheduled."""
    reached = None
    while runtime.log.promote(1 << 60) or reached != (reached := int(runtime.log.end())):
        runtime.advance(int(runtime.log.end()))


def replies(runtime: Inline) -> dict[str, str | None]:
    """Return the error of each record of the log, by its id."""
    columns = ("request_id", "error")
    last = runtime.journal.last()
    assert last is not None
    found: dict[str, str | None] = {}
    for _, rows in runtime.journal.rows(PartKind.TRANSACTIONS, Epoch(-1), last.epoch, columns):
        found |= dict(zip(rows["request_id"].to_pylist(), rows["error"].to_pylist(), strict=True))
    return found


def append(runtime: Inline, method: str, *arguments: object) -> None:
    for name in ("a", "asked", "called"):
        runtime.log.append([Entry(RequestId(name), *app.request("Note", name, "create"), 0)])
    body, hint = app.request("Note", "a", method, arguments)
    runtime.log.append([Entry(RequestId("first"), body, hint, 0)])


def test_a_later_record_may_be_larger_than_a_request_from_outside(runtime: Inline) -> None:
    """It is in a commit already, so a refusal by the log would stop the driver forever."""
    assert len(LARGE) > runtime.config.record_bytes_max
    append(runtime, "write_large")
    run(runtime)
    assert list(replies(runtime).values()) == [None] * 6


@pytest.fixture
def cutting(tmp_path: Path) -> Iterator[Inline]:
    limits = Limits(cascade_steps=2)
    chosen = {"small_epoch": 100, "epoch_records_max": 4, "limits": limits}
    made = Inline(tmp_path, 1, SPEC, app.name, **chosen)
    made.in_turn = True
    yield made
    made.close()


def test_a_cascade_goes_on_at_once_if_no_record_waits(cutting: Inline) -> None:
    """The rest is in the log before the next epoch."""
    append(cutting, "repeat", 5)
    cutting.advance(int(cutting.log.end()))
    assert cutting.log.scheduled(RequestId("first~~c1")) is None
    assert cutting.log.find(RequestId("first~~c1")) is not None


def test_a_cascade_lets_the_records_go_first_that_wait(cutting: Inline) -> None:
    """Its rest is scheduled, and then it is an epoch of its own."""
    append(cutting, "repeat", 5)
    others(cutting, "second", "third")
    cutting.advance(4)
    assert cutting.log.scheduled(RequestId("first~~c1")) is not None
    cutting.log.promote(1 << 60)
    others(cutting, "fourth", "fifth")
    cutting.advance(int(cutting.log.end()))
    there = place(cutting, "first~~c1")
    ends = list(accumulate(report.records for report, _ in cutting.reports))
    assert ends.index(there) + 1 == ends.index(there + 1)
    assert cutting.log.end() > there + 1


def test_callers_who_wait_for_each_reply_have_their_time(cutting: Inline) -> None:
    """Behind their epoch no record waits for a moment; the cascade goes on when it is due nevertheless."""
    append(cutting, "repeat", 5)
    others(cutting, "second", "third")
    cutting.advance(4)
    for name in ("fourth", "fifth"):
        cutting.advance(int(cutting.log.end()))
        assert cutting.log.scheduled(RequestId("first~~c1")) is not None
        others(cutting, name)


def test_no_cascade_overtakes_another(cutting: Inline) -> None:
    """The rest of a cascade that was cut first comes first, also if no record waits when the other one is cut."""
    append(cutting, "repeat", 5)
    repeat(cutting, "second")
    cutting.advance(4)
    assert cutting.log.scheduled(RequestId("first~~c1")) is not None, "the second one waits"
    cutting.advance(5)
    cutting.log.promote(1 << 60)
    assert place(cutting, "first~~c1") < place(cutting, "second~~c1")


def test_only_one_cascade_goes_on_at_once(cutting: Inline) -> None:
    """A caller who comes then waits for one rest, and not for all; they go on in turn, at the latest when they are due."""
    append(cutting, "write", "x")
    for name in NAMES:
        repeat(cutting, name)
    cutting.advance(4)
    cutting.advance(7)
    waiting = [name for name in NAMES if cutting.log.scheduled(RequestId(f"{name}~~c1"))]
    assert waiting == ["third", "fourth"]
    while (end := int(cutting.log.end())) > cutting.driver.positions[ONLY] or cutting.log.promote(
        1 << 60
    ):
        cutting.advance(int(cutting.log.end()))
    ids = [record.request_id for record in cutting.log.read(Lsn(0), Lsn(end))]
    rests = [name for name in ids if "~~c" in name and "." not in name]
    assert rests == [f"{name}~~c{number}" for number in (1, 2) for name in NAMES]


def test_a_driver_that_starts_again_knows_the_cascades_that_wait(cutting: Inline) -> None:
    """The rest of a cascade does not overtake one that an earlier driver has scheduled."""
    append(cutting, "repeat", 5)
    repeat(cutting, "second")
    cutting.advance(4)
    cutting.restart()
    cutting.advance(5)
    cutting.log.promote(1 << 60)
    assert place(cutting, "first~~c1") < place(cutting, "second~~c1")


def repeat(runtime: Inline, name: str) -> None:
    """Append a request whose cascade is cut."""
    body, hint = app.request("Note", "a", "repeat", [5])
    runtime.log.append([Entry(RequestId(name), body, hint, 0)])


def place(runtime: Inline, name: str) -> int:
    """Return the position of a record in the log."""
    found = runtime.log.find(RequestId(name))
    assert found is not None
    return found[1]


def others(runtime: Inline, *names: str) -> None:
    """Append requests of other callers."""
    body, hint = app.request("Note", "a", "write", ["x"])
    runtime.log.append([Entry(RequestId(name), body, hint, 0) for name in names])


class Fragile(InlineJobs):
    """Workers that fail whenever the record with an id ending in `bad` runs."""

    bad = ""

    def run(self, given: Sequence[TaskCommand]) -> list[TaskResult]:
        for command in given:
            if isinstance(command, RunTransactions) and command.decided == {}:
                (one,) = command.ranges
                assert self._worker._log is not None
                records = self._worker._log.read(one.start, one.end)
                if self.bad and any(record.request_id.endswith(self.bad) for record in records):
                    raise RuntimeError
        return super().run(given)


@pytest.fixture
def fragile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Inline]:
    monkeypatch.setattr("tests.differential.inline.InlineJobs", Fragile)
    limits = Limits(cascade_steps=2)
    made = Inline(tmp_path, 1, SPEC, app.name, small_epoch=100, limits=limits)
    yield made
    made.close()


def system_rows(runtime: Inline) -> set[str]:
    """Return the names of the system rows that are left."""
    last = runtime.journal.last()
    assert last is not None
    rows: dict[tuple[str, str], bool] = {}
    columns = ("entity", "key", "state")
    for _, table in runtime.journal.rows(PartKind.CHANGES, Epoch(-1), last.epoch, columns):
        for row in table.to_pylist():
            rows[row["entity"], row["key"]] = row["state"] is not None
    return {name for (name, _), exists in rows.items() if exists and name.startswith("$")}


def test_a_handler_does_not_wait_for_a_request_that_was_set_aside(
    fragile: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver sets the request of an asking handler aside: the handler ends, and its atom is set aside."""
    monkeypatch.setattr(Fragile, "bad", "~~s1.0")
    fragile.log.append([Entry(RequestId("first"), app.append("numbers", [3]), b"", 0)])
    run(fragile)
    assert replies(fragile) == {"first": None, "first~~s1.0": "internal"}
    assert system_rows(fragile) == set()
    last = fragile.journal.last()
    assert last is not None
    assert last.atoms == {"numbers": 1, "answers": 1, "asking-failed": 1}


def test_a_cut_cascade_that_was_set_aside_leaves_nothing(
    fragile: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request that is left of it has a reply, and each atom that is left is set aside."""
    monkeypatch.setattr(Fragile, "bad", "~~c1")
    append(fragile, "repeat", 5)
    run(fragile)
    assert replies(fragile)["first~~c1"] == "internal"
    assert system_rows(fragile) == set()
