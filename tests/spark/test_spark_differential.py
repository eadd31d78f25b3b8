"""Random programs through real Spark: replies and state are those of one thread, byte for byte.

One runtime for each number of partitions takes one history after the other; the serial runtime
takes the same log. `tests/differential` does the same a hundred times faster without Spark, so a
difference that only shows here lies in Spark's own part.
"""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.base.ids import Lsn, RequestId
from penstock.log.api import Entry
from penstock.process.config import Config
from penstock.process.epoch_report import EpochReport
from penstock.runtime.local.runtime import LocalRuntime
from penstock.runtime.spark import parallelism
from penstock.runtime.spark.runtime import SparkRuntime
from penstock.state.digest import digest_of_mapping
from tests.differential.committed import answers_of, digest_of_stores, state_of
from tests.differential.machine import app
from tests.differential.programs import Call as DrawnCall
from tests.differential.programs import histories, shapes, tangles
from tests.differential.simulation import Answer

pytestmark = pytest.mark.spark

MACHINE = Path(__file__).parent.parent / "differential" / "machine.py"
CASCADES = MACHINE.with_name("cascade_app.py")
DEADLINE_MS = 120_000

several_calls: st.SearchStrategy[list[tuple[str, DrawnCall]]] = st.lists(
    histories() | tangles() | shapes(), min_size=3, max_size=5
).map(
    lambda several: [
        (f"{number}-{name}", call)
        for number, history in enumerate(several)
        for name, call in [*history.created(), *history.every()]
    ]
)


class Pair:
    """A Spark runtime and one thread over the same log."""

    def __init__(self, folder: Path, partitions: int) -> None:
        self.config = Config(data=folder, cores=2, partitions=partitions, small_epoch=0)
        self.spark = SparkRuntime(f"{MACHINE}:app", self.config)
        self.serial = LocalRuntime(app, secret=self.spark.journal.secret)
        self.reports: list[EpochReport] = []
        self.expected: list[Answer] = []
        self._numbers = count()
        self._taken = Lsn(0)
        self.spark.on_epoch.append(self.reports.append)
        self.spark.start()

    def take(self, sent: list[tuple[str, DrawnCall]]) -> None:
        """Give calls to both; return when Spark has answered all."""
        number = next(self._numbers)
        self.spark.log.append(
            [Entry(RequestId(f"{number}-{name}"), *call.encode(app), number) for name, call in sent]
        )
        end = self.spark.log.end()
        assert self.spark.wait_until(end, DEADLINE_MS), "answered within the deadline"
        replies = self.serial.replay(self.spark.log.read(self._taken, end))
        self.expected += [Answer(one.request_id, one.error, one.data) for one in replies]
        self._taken = end


@pytest.fixture(scope="module", params=[2, 3])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """Start Spark; let epochs run in several tasks however often conflicts repeat work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallelism, "REPEATED_TOO_MUCH", 1_000.0)
        made = Pair(tmp_path_factory.mktemp("machine"), request.param)
        yield made
        made.spark.stop()


def drawn(number: int) -> list[list[tuple[str, DrawnCall]]]:
    """Draw examples; a runtime that goes on from one to the next leaves nothing to shrink."""
    found: list[list[tuple[str, DrawnCall]]] = []

    @settings(max_examples=number, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(several_calls)
    def collect(sent: list[tuple[str, DrawnCall]]) -> None:
        found.append(sent)

    collect()
    return found


def test_spark_answers_like_one_thread(pair: Pair) -> None:
    """Every reply in the journal, in its order, is the reply of one thread."""
    for sent in drawn(6):
        pair.take(sent)
        assert answers_of(pair.spark.journal) == pair.expected, sent


def test_spark_leaves_the_state_of_one_thread(pair: Pair) -> None:
    """After all histories the journal's fold and the stores hold the state of one thread."""
    assert state_of(pair.spark.journal) == pair.serial.state
    assert digest_of_stores(pair.config, pair.spark.journal) == digest_of_mapping(pair.serial.state)


def test_spark_ran_several_tasks_and_rounds(pair: Pair) -> None:
    """The compared histories did run in several tasks, and again after conflicts."""
    assert max(report.tasks for report in pair.reports) == pair.config.partitions
    assert max(report.rounds for report in pair.reports) > 1
