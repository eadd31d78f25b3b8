"""The benchmark of replay runs with the present history."""

import json
import subprocess
import sys

from tests.checkout import TOP


def test_benchmark_of_replay_runs() -> None:
    """A small journal is written, replayed without a difference, and what-if leaves out one request."""
    sizes = ["--orders", "200", "--checkouts", "500", "--epoch", "250"]
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks.replay", *sizes],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout.splitlines()[-1])
    assert (figures["requests"], figures["epochs"]) == (500, 2)
    assert all(figures[name] > 0 for name in figures)
