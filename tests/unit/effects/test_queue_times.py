"""The times at which failed effects are called again, while the machine's clock jumps; a disk that does not take the queue."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from penstock.base.ids import RequestId
from penstock.effects.queue import Queue, Queued, Status
from penstock.effects.service import retry_due_us, telling_of_queue
from penstock.errors import LogUnavailable
from penstock.log.clock import wall_clock_us
from penstock.model.effect import EffectPlan
from penstock.model.request import Request
from penstock.model.waiting_effect import waiting_row
from penstock.process.effect_files import queue_of, read_effects_report

HOUR_US = 3_600_000_000
REQUEST = Request("", None, "charge", msgspec.Raw(b"\x90"), msgspec.Raw(b"\x80"))


def test_a_clock_that_was_set_back_delays_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause until the next try stays as long as it was, ahead or back."""
    with closing(Queue(tmp_path / "queue.sqlite", "me")) as queue:
        queue.take([("e", waiting_row(RequestId("r~~1"), REQUEST, 1))])
        queued = queue.next(Status.READY, "charge")
        assert queued is not None
        queue.call(queued)
        now_us = wall_clock_us()
        queue.put_later("e", now_us + 5_000_000, 0, "it does not answer")
        for jump_us in (-HOUR_US, HOUR_US, -24 * HOUR_US):
            now_us += jump_us
            monkeypatch.setattr("penstock.log.clock.wall_clock_us", lambda now_us=now_us: now_us)
            due_us = queue.wake(now_us)
            assert due_us is not None
            assert 0 < due_us - now_us < 60_000_000


def test_a_jump_of_the_clock_changes_no_time_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`until` counts the seconds that have passed: no jump ends an effect early, or makes it live longer."""
    plan = EffectPlan(100, 1.0, until_s=60.0, once=False, is_async=False)
    real_us = wall_clock_us()
    called: list[Queued] = []
    with closing(Queue(tmp_path / "queue.sqlite", "me")) as queue:
        for jump_us in (0, 24 * HOUR_US, -HOUR_US, 0):
            now_us = real_us + jump_us
            monkeypatch.setattr("penstock.log.clock.wall_clock_us", lambda now_us=now_us: now_us)
            queue.wake(now_us)
            queue.take([(f"e{len(called)}", waiting_row(RequestId("r~~1"), REQUEST, now_us))])
            queued = queue.next(Status.READY, "charge")
            assert queued is not None
            queue.call(queued)
            queue.take([(queued.key, None)])
            called.append(queued)
            for each in called:
                sent_us = queue.sent_us(each)
                assert retry_due_us(plan, sent_us, 1, now_us + 50_000_000, None, 1.0) is not None
                assert retry_due_us(plan, sent_us, 1, now_us + 70_000_000, None, 1.0) is None


def test_a_jump_of_the_clock_is_known_to_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The effect process starts again after a jump, or the clock jumps while no effect process runs."""
    plan = EffectPlan(100, 1.0, until_s=60.0, once=False, is_async=False)
    real_us = wall_clock_us()
    called: list[Queued] = []
    for count, jump_us in enumerate((0, 24 * HOUR_US, 24 * HOUR_US, -HOUR_US, 0)):
        now_us = real_us + jump_us
        monkeypatch.setattr("penstock.log.clock.wall_clock_us", lambda now_us=now_us: now_us)
        with closing(Queue(tmp_path / "queue.sqlite", "me")) as queue:
            assert count == 0 or 0 < (queue.wake(now_us) or 0) - now_us < 60_000_000
            queue.take([(f"e{count}", waiting_row(RequestId("r~~1"), REQUEST, now_us))])
            queued = queue.next(Status.READY, "charge")
            assert queued is not None
            queue.call(queued)
            queue.put_later(queued.key, now_us + 50_000_000, 0, "it does not answer")
            called.append(queued)
            for each in called:
                sent_us = queue.sent_us(each)
                assert retry_due_us(plan, sent_us, 1, now_us + 50_000_000, None, 1.0) is not None
                assert retry_due_us(plan, sent_us, 1, now_us + 70_000_000, None, 1.0) is None


def test_steps_of_the_clock_are_not_counted_for_later_effects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers of effects go on behind a step, also if the effects before it have ended."""
    now_us = wall_clock_us()
    path = tmp_path / "queue.sqlite"
    with closing(Queue(path, "me")) as queue:
        for name in ("a", "b", "c"):
            queue.take([(name, waiting_row(RequestId("r~~1"), REQUEST, now_us))])
        monkeypatch.setattr("penstock.log.clock.wall_clock_us", lambda: now_us + HOUR_US)
        queue.wake(now_us + HOUR_US)
        queue.take([("b", None), ("c", None)])
    with closing(Queue(path, "me")) as queue:
        queue.take([("d", waiting_row(RequestId("r~~1"), REQUEST, now_us + HOUR_US))])
        moved = {}
        while queued := queue.next(Status.READY, "charge"):
            queue.call(queued)
            moved[queued.key] = round((queue.sent_us(queued) - now_us) / HOUR_US)
    assert moved == {"a": 1, "d": 1}


def test_a_disk_that_fails_destroys_no_queue(tmp_path: Path) -> None:
    """The queue has how often its effects were called: only a damaged one is made again. The status names the file."""
    path = queue_of(tmp_path)
    with closing(Queue(path, "me")) as queue:
        queue.take([("a", waiting_row(RequestId("r~~1"), REQUEST, 1))])
    kept = path.read_bytes()
    in_the_way = path.with_name("queue.sqlite-wal")
    in_the_way.mkdir()
    with (
        pytest.raises(LogUnavailable, match=r"queue\.sqlite: unable to open"),
        telling_of_queue(tmp_path),
    ):
        Queue(path, "me")
    assert path.read_bytes() == kept
    report = read_effects_report(tmp_path)
    assert report is not None
    assert report.state == "stopped"
    assert report.reason == f"{path}: unable to open database file"
    with pytest.raises(LogUnavailable), telling_of_queue(tmp_path):
        raise sqlite3.OperationalError("database or disk is full")
    report = read_effects_report(tmp_path)
    assert report is not None
    assert report.remedy == "make room on its disk"
    in_the_way.rmdir()
    path.write_bytes(b"no database" * 1_000)
    with closing(Queue(path, "me")) as queue:
        assert queue.position() is None
