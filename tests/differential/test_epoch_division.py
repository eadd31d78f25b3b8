"""A request that stops its epoch comes to stand alone, is recorded as failed, and stops nothing else."""

import errno
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import Epoch, Lsn, RequestId
from penstock.errors import Fenced, JournalUnavailable, StateUnavailable
from penstock.journal.api import PartKind
from penstock.journal.replies import LogPosition, replies_of
from penstock.log.api import Entry
from penstock.process.incidents import IncidentLog
from penstock.runtime.spark.division import DEATHS_MAX, Division
from penstock.runtime.spark.messages import RunTransactions, TaskCommand, TaskResult
from penstock.runtime.spark.quarantine import Quarantine
from tests.differential.inline import ONLY, Inline, InlineJobs
from tests.differential.machine import app


class Poisoned(InlineJobs):
    """Workers that fail whenever a handler runs whose position in the log is among `bad`.

    Attributes:
        attempts: How often each of these was run.
        full: Whether everything fails, as with a full disk.
    """

    bad: frozenset[int] = frozenset()
    error: Callable[[], Exception] = RuntimeError
    full = False
    attempts: list[int]

    def run(self, given: Sequence[TaskCommand]) -> list[TaskResult]:
        for order in given:
            if isinstance(order, RunTransactions):
                if self.full:
                    raise StateUnavailable("the disk is full")
                (one,) = order.ranges
                running = {one.start + at for at in range(one.end - one.start)}
                running -= {one.start + at for at in order.decided}
                if stopping := sorted(running & self.bad):
                    self.attempts += stopping
                    raise type(self).error()
        return super().run(given)


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Inline]:
    monkeypatch.setattr("tests.differential.inline.InlineJobs", Poisoned)
    monkeypatch.setattr(Poisoned, "attempts", [], raising=False)
    made = Inline(tmp_path, partitions=1)
    yield made
    made.close()


def append(runtime: Inline, count: int) -> None:
    body, hint = app.request(next(iter(app.entities)), "missing", "delete")
    runtime.log.append([Entry(RequestId(f"r{n}"), body, hint, 0) for n in range(count)])


def answers(runtime: Inline) -> dict[int, str | None]:
    """Return the error of each request by its place in the log, from the journal."""
    found: dict[int, str | None] = {}
    for commit in runtime.journal.commits(Epoch(-1)):
        positions: list[LogPosition] = [(ONLY, Lsn(at)) for at in range(2_000)]
        for (_, lsn), reply in replies_of(runtime.journal, commit, positions).items():
            assert lsn not in found, "answered twice"
            found[lsn] = reply.error
        assert commit.parts_of(PartKind.TRANSACTIONS)
    return found


@pytest.mark.parametrize("bad", [0, 1, 517, 1_023])
def test_one_request_is_set_aside_in_a_bounded_number_of_attempts(
    runtime: Inline, monkeypatch: pytest.MonkeyPatch, bad: int
) -> None:
    """It runs at most log2(n) + 2 times; every other request has the answer that it always has."""
    monkeypatch.setattr(Poisoned, "bad", frozenset({bad}))
    append(runtime, 1_024)
    runtime.advance(1_024)
    assert len(Poisoned.attempts) <= math.log2(1_024) + 2
    found = answers(runtime)
    assert found.pop(bad) == "internal"
    assert found == dict.fromkeys(set(range(1_024)) - {bad}, "no-such-entity")
    (incident,) = IncidentLog(runtime.config.data).newest()
    assert (incident.request_id, incident.lsn) == (f"r{bad}", bad)
    assert "RuntimeError" in incident.cause
    assert sum(report.incidents for report, _ in runtime.reports) == 1


@pytest.mark.parametrize("error", [RuntimeError, partial(StateUnavailable, "closed files")])
def test_many_requests_are_set_aside_one_by_one(
    runtime: Inline, monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception]
) -> None:
    """Also if their effect looks like a failing disk, which works without them."""
    bad = frozenset({3, 4, 77, 199})
    monkeypatch.setattr(Poisoned, "bad", bad)
    monkeypatch.setattr(Poisoned, "error", error)
    append(runtime, 200)
    runtime.advance(200)
    assert {at for at, code in answers(runtime).items() if code == "internal"} == bad


def test_surroundings_that_fail_blame_nobody(
    runtime: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is an error of the whole; when there is room again, every request runs."""
    append(runtime, 8)
    monkeypatch.setattr(Poisoned, "full", True)
    for _ in range(5):
        with pytest.raises(StateUnavailable):
            runtime.advance(8)
    monkeypatch.setattr(Poisoned, "full", False)
    runtime.advance(8)
    assert answers(runtime) == dict.fromkeys(range(8), "no-such-entity")
    assert IncidentLog(runtime.config.data).newest() == []


@pytest.mark.parametrize("place", ["commit", "worker"])
def test_a_disk_that_has_room_for_less_blames_nobody(
    runtime: Inline, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The outcome of a request without its handler may fit on a disk where the epoch, or its commit, does not."""
    append(runtime, 1)
    holder, name = (runtime.journal, "commit") if place == "commit" else (runtime._jobs, "run")
    done, tries = getattr(holder, name), []

    def full(given: Any) -> Any:
        if place == "commit" or not given[0].decided:
            tries.append(given)
            if len(tries) <= 2:
                raise JournalUnavailable(os.strerror(errno.ENOSPC))
        return done(given)

    monkeypatch.setattr(holder, name, full)
    for _ in range(2):
        with suppress(JournalUnavailable):
            runtime.advance(1)
    runtime.advance(1)
    assert answers(runtime) == {0: "no-such-entity"}
    assert IncidentLog(runtime.config.data).newest() == []


def test_a_full_disk_is_looked_at_before_a_request_is_blamed(
    runtime: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a file cannot grow, a request that fails alone is not set aside; with space it is, if it fails again."""
    append(runtime, 1)
    monkeypatch.setattr(Poisoned, "bad", frozenset({0}))

    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, "the disk is full: 22,528 bytes are free")

    with monkeypatch.context() as patched:
        patched.setattr("penstock.runtime.spark.driver.check_space", full)
        with pytest.raises(JournalUnavailable, match="cannot run an epoch: the disk is full"):
            runtime.advance(1)
    assert answers(runtime) == {}
    runtime.advance(1)
    assert answers(runtime) == {0: "internal"}


def test_a_second_driver_is_no_fault_of_a_request(
    runtime: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fenced driver divides nothing: it stops."""
    append(runtime, 8)
    monkeypatch.setattr(Poisoned, "bad", frozenset({5}))
    monkeypatch.setattr(Poisoned, "error", partial(Fenced, "another driver"))
    with pytest.raises(Fenced):
        runtime.advance(8)
    assert Poisoned.attempts == [5]


def test_drivers_that_die_divide_the_epoch(tmp_path: Path) -> None:
    """Each new driver takes half of the fatal range; a single death blames no request."""
    path, records = tmp_path / "attempt.json", 1_000
    for _ in range(10):
        division = Division(path, 10_000)
        division.recall(Epoch(4), tmp_path)
        if division.suspects:
            assert division.width == max(1, records // 2)
            records = division.width
        division.begin(Epoch(5), records)
    assert records == 1
    for deaths in range(1, DEATHS_MAX + 1):
        with Quarantine(tmp_path / "e5-r1-t0.running") as quarantine:
            quarantine.now[0] = 0  # the records that ran when the driver died
            division = Division(path, 10_000)
            division.recall(Epoch(4), tmp_path.parent)
            assert (division.deaths, division.width) == (deaths, 1)
            division.begin(Epoch(5), 1)
    fresh = Division(path, 10_000)
    fresh.recall(Epoch(5), tmp_path)
    assert (fresh.suspects, fresh.deaths, fresh.width) == (0, 0, 10_000)


def test_a_torn_note_of_an_attempt_says_nothing(tmp_path: Path) -> None:
    """The note is a hint: without it, the next driver begins with a whole epoch."""
    path = tmp_path / "attempt.json"
    path.write_bytes(b'{"epoch":5,"rec')
    division = Division(path, 100)
    division.recall(Epoch(4), tmp_path)
    assert (division.suspects, division.width) == (0, 100)


@pytest.mark.parametrize("partitions", [1, 2])
def test_an_epoch_is_cut_where_its_outputs_are_large(tmp_path: Path, partitions: int) -> None:
    """No epoch holds more replies and changes than the bound and one request's; all are answered."""
    runtime = Inline(tmp_path, partitions, epoch_output_bytes_max=2_000)
    append(runtime, 200)
    runtime.advance(200)
    assert answers(runtime) == dict.fromkeys(range(200), "no-such-entity")
    sizes = []
    for commit in runtime.journal.commits(Epoch(-1)):
        tables = [runtime.journal.read(one) for one in commit.parts_of(PartKind.TRANSACTIONS)]
        sizes.append(sum(len(data) for one in tables for data in one["reply"].to_pylist()))
    assert len(sizes) > 4
    assert max(sizes) <= 2_000 + 200
    runtime.close()
