"""The cases of the programming model through the driver of epochs, with a real log, journal and stores."""

import math
from pathlib import Path

import pytest

from penstock.engine.limits import Limits
from penstock.runtime.spark import parallelism
from penstock.runtime.spark.messages import RunSteps
from tests.differential.inline import Inline
from tests.streams.case_runs import CUT, WHOLE, check_cases, take_rounds


@pytest.mark.parametrize(
    ("partitions", "overlapped", "limits"),
    [
        (1, False, CUT),
        (2, False, WHOLE),  # tests/spark/test_spark_streams.py has the cut ones
        (2, True, WHOLE),
        (2, True, CUT),
        (3, False, CUT),  # and there are the whole ones
    ],
    ids=["1-cut", "2-whole", "2-overlapped-whole", "2-overlapped-cut", "3-cut"],
)
@pytest.mark.turns(1, "engine", "runtime", "dataflow", "model")
def test_cases_in_epochs(
    tmp_path: Path,
    partitions: int,
    limits: Limits,
    monkeypatch: pytest.MonkeyPatch,
    *,
    overlapped: bool,
) -> None:
    """Epochs of one task, of several, and of two passes at once; atoms in shares, waits in memory and in the state: the bytes are those of one thread."""
    # No measured time decides.
    monkeypatch.setattr(parallelism, "OVERLAP_SAVES_MS", -math.inf if overlapped else math.inf)
    settings = {"small_epoch": 8, "limits": limits, "large_atom": int(partitions == 3)}
    inline = Inline(tmp_path, partitions, "tests.streams.cases:app", "cases", **settings)

    def settle() -> None:
        reached = None
        while reached != (reached := int(inline.log.end())):
            inline.advance(reached)

    try:
        take_rounds(inline.log, settle)
        check_cases(inline.journal, inline.log, limits)
        assert {report.tasks for report, _ in inline.reports} == (
            {1} if overlapped else {1, partitions}
        )
        steps = [order for order in inline._jobs.taken if isinstance(order, RunSteps)]
        assert any(order.relay for order in steps) == overlapped
    finally:
        inline.close()
