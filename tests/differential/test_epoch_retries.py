"""An epoch that fails is tried again in pieces, and its requests take effect once."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.base.ids import Epoch, RequestId
from penstock.errors import EpochFailed
from penstock.log.api import Entry
from penstock.runtime.spark.messages import (
    ApplyEpoch,
    RunTransactions,
    TaskCommand,
    TaskResult,
)
from tests.differential.inline import Inline, InlineJobs
from tests.differential.machine import app


class Feeble(InlineJobs):
    """Workers that fail on more than ten transactions at once, as if memory were too small."""

    def run(self, given: Sequence[TaskCommand]) -> list[TaskResult]:
        for order in given:
            if (
                isinstance(order, RunTransactions)
                and order.ranges[0].end - order.ranges[0].start > 10
            ):
                raise EpochFailed("too large")
        return super().run(given)


def test_an_epoch_too_large_gets_through_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failure quarters the records of the next attempt; a commit ends the restriction."""
    monkeypatch.setattr("tests.differential.inline.InlineJobs", Feeble)
    runtime = Inline(tmp_path, partitions=1)
    name = next(iter(app.entities))
    body, hint = app.request(name, "missing", "delete")
    now_us = time.time_ns() // 1_000
    runtime.log.append([Entry(RequestId(f"r{n}"), body, hint, now_us) for n in range(40)])
    failures = 0
    while sum(report.records for report, _ in runtime.reports) < 40:
        try:
            runtime.advance(40)
        except EpochFailed:
            failures += 1
        assert failures <= 40, "each round of failures ends in an epoch"
    assert max(report.records for report, _ in runtime.reports) <= 10
    assert [epoch for _, epoch in runtime.reports] == list(range(len(runtime.reports)))
    runtime.close()


def test_stores_that_are_further_are_no_failure(tmp_path: Path) -> None:
    """A command that was to bring them to an epoch may come behind that of a later one: no host is left out for it."""
    runtime = Inline(tmp_path, partitions=1)
    body, hint = app.request(next(iter(app.entities)), "missing", "delete")
    for number in range(3):
        runtime.log.append([Entry(RequestId(f"r{number}"), body, hint, number)])
        runtime.advance(number + 1)
    runtime._jobs.run([ApplyEpoch([0], Epoch(2), 1)])
    runtime._jobs.run([ApplyEpoch([0], Epoch(0), 1)])
    runtime.close()
