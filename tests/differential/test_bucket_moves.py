"""Random programs with moves of buckets between their requests equal one thread."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.ids import BEFORE_FIRST, RequestId
from penstock.log.api import Entry
from penstock.orders.partitions import append_move
from penstock.runtime.local.runtime import LocalRuntime
from penstock.runtime.spark.messages import ApplyEpoch, TaskCommand, TaskResult
from penstock.state.digest import digest_of_mapping
from tests.differential.committed import answers_of, digest_of_stores, state_of
from tests.differential.inline import Inline, InlineJobs
from tests.differential.machine import app
from tests.differential.programs import History, drawn, histories
from tests.differential.simulation import Answer


@drawn(10)
@given(
    histories(most=8),
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 4)), min_size=1, max_size=3),
    st.booleans(),
)
def test_moves_change_no_outcome(
    history: History,
    first: int,
    moves: list[tuple[int, int]],
    restarted: bool,  # noqa: FBT001
) -> None:
    """Replies, journal and stores are those of one thread; each commit names the number that is in force after it."""
    with tempfile.TemporaryDirectory() as folder:
        inline = Inline(Path(folder), first)
        serial = LocalRuntime(app, secret=inline.journal.secret)
        try:
            places: dict[int, int] = {}
            for number, (request_id, call) in enumerate([*history.created(), *history.every()]):
                for _, partitions in (move for move in moves if move[0] == number):
                    places[append_move(inline.log, partitions)] = partitions
                entry = Entry(RequestId(request_id), *call.encode(app), int(inline.log.end()))
                inline.log.append([entry])
                if restarted and number == 5:
                    inline.advance(inline.log.end())
                    inline.restart()
            inline.advance(end := inline.log.end())
            records = inline.log.read(inline.log.start(), end)
            replies = serial.replay(records)
            expected = [Answer(one.request_id, one.error, one.data) for one in replies]
            assert answers_of(inline.journal) == expected
            assert state_of(inline.journal) == serial.state
            digest = digest_of_mapping(serial.state)
            for commit in inline.journal.commits(BEFORE_FIRST):
                reached = max(commit.positions.values())
                done = [number for place, number in places.items() if place < reached]
                assert commit.partitions == (done[-1] if done else first)
            assert digest_of_stores(inline.config, inline.journal) == digest
        finally:
            inline.close()


class Fragile(InlineJobs):
    """Workers that die when they read the former stores."""

    def _run_job(self, commands: Sequence[TaskCommand]) -> list[TaskResult]:
        if any(isinstance(command, ApplyEpoch) and command.former for command in commands):
            raise RuntimeError("Python worker exited unexpectedly (crashed)")
        return super()._run_job(commands)


def test_damaged_former_stores_stop_no_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a store kills each process that reads it, the new stores are built from the journal."""
    monkeypatch.setattr("tests.differential.inline.InlineJobs", Fragile)
    inline = Inline(tmp_path, 2)
    body, hint = app.request("Alpha", "x", "create")
    inline.log.append([Entry(RequestId("r"), body, hint, 0)])
    append_move(inline.log, 3)
    append_move(inline.log, 2_000)
    inline.advance(inline.log.end())
    assert [answer.error for answer in answers_of(inline.journal)] == [None, None, "config"]
    last = inline.journal.last()
    assert last is not None
    assert last.partitions == 3
    expected = digest_of_mapping(state_of(inline.journal))
    assert digest_of_stores(inline.config, inline.journal) == expected
    inline.close()
