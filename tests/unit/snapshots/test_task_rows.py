"""Rows of tasks and of the engine in snapshots: they are carried and restored as rows of entities are."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from penstock.base.ids import Epoch
from penstock.journal.api import CompactionPolicy
from penstock.process.data_directory import DataDirectory
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.snapshot_writer import write_next_snapshot
from penstock.snapshots.state_as_of import all_states_as_of, state_as_of
from penstock.state.partition_spec import PartitionSpec
from penstock.state.stores import catch_up
from tests.memory_state import MemoryState
from tests.unit.sql_view.words_app import WrittenStreams, app, row_of

COUNT = "wordcount.Count"


class Words:
    """The journal of the words application in a directory, with its snapshots."""

    def __init__(self, data: Path) -> None:
        self.journal = DataDirectory(data).open_journal(app)
        self.snapshots = Snapshots(data / "snapshots", self.journal.identity)
        written = WrittenStreams(self.journal)
        written.commit(
            states={
                f"{COUNT}/a": row_of(COUNT, total=1),
                f"{COUNT}/b": row_of(COUNT, total=1),
                f"{COUNT}.task/-": row_of(f"{COUNT}.task", words=2),
                "Shelf/a": row_of("Shelf", books=1),
                "$steps/r0~~c1": b"\x91\x01",
                "$wait/counts/1": b"\x92\x01\x02",
            }
        )
        written.commit(states={f"{COUNT}/b": None, "$steps/r0~~c1": None, "$steps/r1": b"\x05"})
        written.commit(states={f"{COUNT}/c": row_of(COUNT, total=2**63), "$wait/counts/1": b"\x07"})

    def take_snapshot(self, epoch: int) -> None:
        write_next_snapshot(app, self.journal, self.snapshots, Epoch(epoch))

    def states(self, epoch: int, snapshots: Snapshots | None = None) -> dict[str, bytes]:
        found = all_states_as_of(self.journal, Epoch(epoch), snapshots).to_pylist()
        return {f"{row['entity']}/{row['key']}": row["state"] for row in found}


@pytest.fixture
def words(tmp_path: Path) -> Words:
    """Return a journal of three epochs."""
    return Words(tmp_path)


def test_snapshots_carry_every_row(words: Words) -> None:
    """The state after each epoch is the same with any snapshots, and when stores are restored."""
    expected = {epoch: words.states(epoch) for epoch in range(3)}
    assert expected[2]["$wait/counts/1"] == b"\x07"
    assert "$steps/r0~~c1" not in expected[1]
    for upto in range(3):
        words.take_snapshot(upto)
        for epoch, states in expected.items():
            assert words.states(epoch, words.snapshots) == states
    words.journal.compact(CompactionPolicy(newest=0, epochs=2, grace_s=0))
    words.journal.forget(Epoch(2))
    restored: dict[str, bytes] = {}
    for partition in range(3):
        state = MemoryState()
        share = PartitionSpec(partition, 3)
        catch_up(state, words.journal, Epoch(2), share, snapshots=words.snapshots)
        with state.reader() as reader:
            restored |= dict(reader.items())
    assert restored == expected[2]


def test_tasks_have_tables_for_other_engines(words: Words) -> None:
    """A Delta reader sees the rows of a task; the rows of the engine have no table."""
    words.take_snapshot(1)
    root = words.snapshots.root
    [row] = DeltaTable(f"{root}/{COUNT}").to_pyarrow_table().to_pylist()
    assert (row["key"], row["total"], row["epoch"]) == ("a", 1, 1)
    assert not list(root.names("$system/_delta_log"))


def test_task_is_typed_as_of_an_epoch(words: Words) -> None:
    """Typed rows of a task do not depend on snapshots, also when a value needs wide columns."""
    expected = [state_as_of(app, words.journal, COUNT, Epoch(epoch)) for epoch in range(3)]
    assert [states.table.wide for states in expected] == [False, False, True]
    for upto in range(3):
        words.take_snapshot(upto)
        for epoch, states in enumerate(expected):
            found = state_as_of(app, words.journal, COUNT, Epoch(epoch), words.snapshots)
            assert found.rows.equals(states.rows)
