"""The epoch driver and its workers over real log, journal and stores equal one thread."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.ids import Lsn, RequestId
from penstock.log.api import Entry
from penstock.runtime.local.runtime import LocalRuntime
from penstock.runtime.spark import parallelism
from penstock.state.digest import digest_of_mapping
from tests.differential.committed import answers_of, digest_of_stores, state_of
from tests.differential.inline import Inline
from tests.differential.machine import app
from tests.differential.programs import Call, History, drawn, histories, tangles
from tests.differential.simulation import Answer


@pytest.fixture(autouse=True, scope="module")
def _always_spread() -> object:
    """However often conflicts repeat work, let epochs run in several tasks: that is tested here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallelism, "REPEATED_TOO_MUCH", 1_000.0)
        yield


@drawn(15)
@given(
    histories(most=8) | tangles(most=10),
    st.integers(1, 3),
    st.integers(1, 9),
    st.booleans(),
)
def test_epochs_equal_one_thread(
    history: History,
    partitions: int,
    cut: int,
    restarted: bool,  # noqa: FBT001
) -> None:
    """Journal, stores and replies are those of one thread, also when a batch is offered twice."""
    with tempfile.TemporaryDirectory() as folder:
        inline = Inline(Path(folder), partitions)
        serial = LocalRuntime(app, secret=inline.journal.secret)
        try:
            sent = [*history.created(), *history.every()]

            def advance(part: list[tuple[str, Call]]) -> Lsn:
                for request_id, call in part:
                    time = int(inline.log.end())
                    inline.log.append([Entry(RequestId(request_id), *call.encode(app), time)])
                inline.advance(end := inline.log.end())
                return end

            first = len(history.made) + cut
            advance(sent[:first])
            if restarted:
                inline.restart()
            end = advance(sent[first:])
            replies = serial.replay(inline.log.read(inline.log.start(), end))
            expected = [Answer(one.request_id, one.error, one.data) for one in replies]
            assert answers_of(inline.journal) == expected
            assert len(inline.reports) <= 2, "an epoch failed and was divided"
            assert state_of(inline.journal) == serial.state
            assert digest_of_stores(inline.config, inline.journal) == digest_of_mapping(
                serial.state
            )
            for report, committed in inline.reports:
                assert report.epoch == committed, (
                    "a listener never hears of an epoch before its commit"
                )
        finally:
            inline.close()
