"""Workflows through real Spark, on random records and in all cases: atoms, replies and state are those of one thread."""

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.base.ids import Lsn, RequestId
from penstock.engine.limits import Limits
from penstock.journal.api import PartKind
from penstock.log.api import Entry, Log, Record
from penstock.model.call import Call
from penstock.process.config import Config
from penstock.process.epoch_report import EpochReport
from penstock.runtime.local.runtime import LocalRuntime
from penstock.runtime.spark import parallelism
from penstock.runtime.spark.runtime import SparkRuntime
from tests.differential import cascade_app
from tests.differential.committed import answers_of, state_of, streams_of
from tests.differential.simulation import Answer
from tests.streams.case_runs import CUT, WHOLE, check_cases, take_rounds
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

CASCADES = Path(__file__).parent.parent / "differential" / "cascade_app.py"
CASES = Path(__file__).parent.parent / "streams" / "cases"
DEADLINE_MS = 120_000


@pytest.fixture
def streaming(tmp_path: Path) -> Iterator[SparkRuntime]:
    """Start an application with streams; epochs of up to three records run in one task, others in two."""
    config = Config(data=tmp_path, cores=2, partitions=2, small_epoch=3)
    runtime = SparkRuntime(f"{CASCADES}:app", config)
    runtime.start()
    yield runtime
    runtime.stop()


@pytest.mark.turns(
    1,
    *("engine", "runtime", "dataflow", "deployment", "exchange", "model", "native", "state"),
    of="one thread beside Spark",
)
def test_spark_publishes_like_one_thread(streaming: SparkRuntime) -> None:
    """Appends and requests, whose cascades append more: atoms, replies and state are those of one thread."""
    serial = LocalRuntime(cascade_app.app, secret=streaming.journal.secret)
    log = streaming.log
    expected = serial.replay(records_of_accounts(streaming))
    for number, program in enumerate(drawn_bodies(6)):
        for size in (len(program), 1, 2):
            start = log.end()
            log.append(
                [
                    Entry(RequestId(f"{number}-{size}-{index}"), body, b"", number)
                    for index, body in enumerate(program[:size])
                ]
            )
            settle(streaming)
            expected += serial.replay(log.read(start, log.end()))
    assert answers_of(streaming.journal) == [
        Answer(one.request_id, one.error, one.data) for one in expected
    ]
    streams = streams_of(streaming.journal)
    assert streams == {name: atoms for name, atoms in serial.streams.items() if atoms}
    assert sum(map(len, streams.values())) > 100, "there is something to compare"
    assert state_of(streaming.journal) == serial.state


@pytest.mark.parametrize("fault", ["in-round@6", "in-steps@150"])
@pytest.mark.turns(
    1,
    *("engine", "runtime", "dataflow", "deployment", "exchange", "model", "native", "state"),
    of="one thread beside Spark",
)
def test_steps_overlap_requests(
    tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workflow steps run while another task runs the requests, and workers of both die: the outcome is that of one thread."""
    monkeypatch.setattr(parallelism, "OVERLAP_SAVES_MS", -math.inf)
    config = Config(data=tmp_path, cores=2, partitions=2, small_epoch=3, fault=fault)
    runtime = SparkRuntime(f"{CASCADES}:app", config)
    reports: list[EpochReport] = []
    runtime.on_epoch.append(reports.append)
    runtime.start()
    try:
        test_spark_publishes_like_one_thread(runtime)
    finally:
        runtime.stop()
    assert {report.tasks for report in reports} == {1}
    assert max(report.records for report in reports) > 3, "there were large epochs"


@pytest.mark.parametrize(
    ("partitions", "limits"),
    [(2, CUT), (3, WHOLE)],  # `test_case_epochs` has the others, without Spark
    ids=["2-cut", "3-whole"],
)
@pytest.mark.turns(
    1,
    *("engine", "runtime", "dataflow", "deployment", "exchange", "model", "native", "state"),
    of="one thread beside Spark",
)
def test_cases_on_spark(tmp_path: Path, partitions: int, limits: Limits) -> None:
    """Each case of the programming model publishes what its check says, and the bytes of one thread.

    With three partitions, each atom is divided that can be.
    """
    large = 1 if partitions == 3 else 0
    config = Config(
        tmp_path, cores=2, partitions=partitions, small_epoch=8, large_atom=large, limits=limits
    )
    runtime = SparkRuntime(str(CASES), config)
    runtime.start()
    try:
        take_rounds(runtime.log, partial(settle, runtime))
        check_cases(runtime.journal, runtime.log, limits)
    finally:
        runtime.stop()


def records_of_accounts(streaming: SparkRuntime) -> list[Record]:
    """Create the accounts; return their records."""
    for name in cascade_app.NAMES:
        streaming.submit(Call("Account", name, "create"))
    return streaming.log.read(Lsn(0), streaming.log.end())


def settle(streaming: SparkRuntime) -> None:
    """Wait until all records are committed, also those that cascades append, at once or later."""
    while True:
        end = streaming.log.end()
        assert streaming.wait_until(end, DEADLINE_MS), "answered within the deadline"
        last = streaming.journal.last()
        assert last is not None, "an epoch was committed"
        if last.parts_of(PartKind.APPENDS) or streaming.log.upcoming(1):
            wait_for(partial(has_grown, streaming.log, end), "later records are appended")
        elif streaming.log.end() == end:
            return


def has_grown(log: Log, end: Lsn) -> bool:
    """Say whether a log has records behind a position."""
    return log.end() > end


def drawn_bodies(number: int) -> list[list[bytes]]:
    """Draw lists of records."""
    programs: list[list[bytes]] = []

    @settings(max_examples=number, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(st.lists(cascade_app.bodies, min_size=8, max_size=20))
    def collect(program: list[bytes]) -> None:
        programs.append(program)

    collect()
    return programs
