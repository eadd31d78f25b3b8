"""The cases of the programming model through the driver of epochs, with a real log, journal and stores."""

from pathlib import Path

import pytest

from penstock.engine.limits import Limits
from tests.differential.inline import Inline
from tests.streams.case_runs import CUT, WHOLE, check_cases, take_rounds


@pytest.mark.parametrize("limits", [WHOLE, CUT], ids=["whole", "cut"])
@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_cases_in_epochs(tmp_path: Path, partitions: int, limits: Limits) -> None:
    """Epochs of one task and of several, atoms in shares, waits in memory and in the state: the bytes are those of one thread."""
    settings = {"small_epoch": 8, "limits": limits, "large_atom": int(partitions == 3)}
    inline = Inline(tmp_path, partitions, "tests.streams.cases:app", "cases", **settings)

    def settle() -> None:
        reached = None
        while reached != (reached := int(inline.log.end())):
            inline.advance(reached)

    try:
        take_rounds(inline.log, settle)
        check_cases(inline.journal, inline.log, limits)
        assert {report.tasks for report, _ in inline.reports} == {1, partitions}
    finally:
        inline.close()
