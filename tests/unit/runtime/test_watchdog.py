"""The watchdog kills a worker whose task makes no progress, in both passes of an epoch."""

import logging
import subprocess
from pathlib import Path

import pytest

from penstock.runtime.spark.quarantine import STEPS_OF, Note, write_note
from penstock.runtime.spark.watchdog import Watchdog

STUCK_S = 10.0


@pytest.mark.parametrize(
    ("name", "position", "facts"),
    [
        ("e3-r1-t0.running", 7, {"epoch": 3, "round": 1, "task": 0, "runs": "requests"}),
        ("e3-r1-t0.running", 7 + STEPS_OF, {"round": 1, "runs": "workflow steps"}),
        ("e3-steps.running", 7 + STEPS_OF, {"epoch": 3, "runs": "workflow steps"}),
    ],
)
def test_worker_without_progress_is_killed(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    position: int,
    facts: dict[str, int | str],
) -> None:
    """A note that stays the same is reported, with the place; after twice the time its worker is killed."""
    with subprocess.Popen(["sleep", "120"]) as worker:
        write_note(tmp_path / name, Note(position, worker.pid))
        watchdog = Watchdog(tmp_path, STUCK_S)
        with caplog.at_level(logging.WARNING):
            watchdog.look(0.0)
            watchdog.look(STUCK_S)
            assert worker.poll() is None, "it is only reported so far"
            watchdog.look(2 * STUCK_S)
        assert worker.wait(60) == -9
    (warning, _) = caplog.records
    assert {**facts, "position": 7, "worker": worker.pid}.items() <= vars(warning).items()
