"""The times at which failed effects are called again, while the machine's clock jumps."""

from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from penstock.base.ids import RequestId
from penstock.effects.queue import Queue, Status
from penstock.log.clock import wall_clock_us
from penstock.model.request import Request
from penstock.model.waiting_effect import waiting_row

HOUR_US = 3_600_000_000


def test_a_clock_that_was_set_back_delays_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause until the next try stays as long as it was, ahead or back."""
    request = Request("", None, "charge", msgspec.Raw(b"\x90"), msgspec.Raw(b"\x80"))
    with closing(Queue(tmp_path / "queue.sqlite", "me")) as queue:
        queue.take([("e", waiting_row(RequestId("r~~1"), request, 1))])
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
