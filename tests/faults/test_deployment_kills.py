"""The driver is killed at every step of a deployment: the code is the old or the new one, as the journal says."""

from pathlib import Path

import pytest

from penstock.base.ids import BEFORE_FIRST, Lsn
from penstock.deployment.code_in_force import deployment_in_force
from penstock.journal.delta import DeltaJournal
from penstock.journal.replies import replies_of
from penstock.process.fault import CONTROL_STEPS
from tests import forked
from tests.differential.inline import ONLY
from tests.differential.killed_driver import opened
from tests.differential.test_live_deployments import FIRST, Shop
from tests.faults.driver_process import KILLED

pytestmark = pytest.mark.faults

PROGRAM = """
import sys
from pathlib import Path
from tests.faults.test_deployment_kills import main

main(Path(sys.argv[1]), *sys.argv[2:])
"""
STEPS = [f"{step}@1" for step in CONTROL_STEPS]
"""The first deployment is killed before its commit, and again after it; the second one after its switch."""


def main(data: Path, fault: str, first: str) -> None:
    """Process the log with the code in force, and die at a step."""
    runtime = opened(data, first, (2, 2), fault)
    runtime.advance(int(runtime.log.end()))
    runtime.close()


def results(journal: DeltaJournal, count: int) -> list[object]:
    """Return the results of the processed records; each has one reply."""
    found: dict[Lsn, object] = {}
    for commit in journal.commits(BEFORE_FIRST):
        positions = [(ONLY, Lsn(n)) for n in range(count)]
        for (_, lsn), reply in replies_of(journal, commit, positions).items():
            assert lsn not in found, "a record has one reply"
            found[lsn] = reply.value()
    return [found[lsn] for lsn in sorted(found)]


@pytest.mark.turns(
    1,
    *("deployment", "engine", "runtime", "journal", "log", "model"),
    of="a driver killed at every step",
)
def test_a_kill_at_every_step_of_a_deployment_changes_no_outcome(tmp_path: Path) -> None:
    """After each kill the next driver runs the code that the journal names, and each record takes effect once."""
    shop = Shop(tmp_path)
    other = shop.version(attributes="stock: int | float = 0", step="0.5")
    last = shop.version(attributes="stock: int | float = 0", step="100")
    shop.call("create", "bump")
    shop.deploy(other)
    shop.call("bump", "bump")
    shop.deploy(last)
    shop.call("bump")
    shop.runtime.close()
    expected = ["tea", 1, None, 1.5, 2.0, None, 102.0]
    first = shop.version(**FIRST)
    archives = [first, other, last]
    seen: list[tuple[int, int]] = []
    for fault in [*STEPS, ""]:
        done = forked.run(PROGRAM, tmp_path, fault, shop.runtime.spec)
        assert done.returncode == (KILLED if fault else 0), f"{fault}: {done.stderr}"
        journal = DeltaJournal(tmp_path / "journal", "shop")
        processed = results(journal, len(expected))
        assert processed == expected[: len(processed)]
        deployment = deployment_in_force(tmp_path, journal)
        assert deployment is not None
        seen.append((len(processed), archives.index(deployment.code)))
        versions = journal.schemas()["Item"]
        assert len(versions) == 2, "the version of the class is written before the commit"
        journal.close()
    assert seen == [(2, 0), (3, 1), (6, 2), (7, 2)]
