"""`LastChanges` gives the same states as the reading of all of them at once."""

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.journal.api import CHANGES, Commit, PartKind
from penstock.snapshots import newest_states
from penstock.snapshots.newest_states import LastChanges, class_states, sorted_by_key
from tests.memory_journal import MemoryJournal

EPOCHS = 60


def journal_of(draw: random.Random) -> MemoryJournal:
    """Commit epochs in which entities of two classes with the same keys are changed and deleted."""
    journal = MemoryJournal()
    for epoch in range(EPOCHS):
        names = [(name, f"k{key}\0") for name in ("Item", "User") for key in range(30)]
        rows = [
            (epoch, name, key, draw.choice((None, draw.randbytes(3))))
            for name, key in draw.sample(names, draw.randrange(20))
        ]
        table = pa.Table.from_pylist(
            [dict(zip(CHANGES.names, row, strict=True)) for row in rows], CHANGES
        )
        parts = (journal.write(PartKind.CHANGES, table, "changes"),)
        journal.commit(Commit(Epoch(epoch), {}, parts, epoch))
    return journal


@pytest.mark.parametrize("merged_rows", [7, 1_000])
def test_newest_states_in_parts(monkeypatch: pytest.MonkeyPatch, merged_rows: int) -> None:
    """The parts together are the newest states of the class, also if keys are merged many times."""
    monkeypatch.setattr(newest_states, "MERGED_ROWS", merged_rows)
    journal = journal_of(random.Random(7))
    for after, upto in pairwise([BEFORE_FIRST, Epoch(0), Epoch(20), Epoch(EPOCHS - 1)]):
        for name in ("Item", "User", "Order"):
            changes = LastChanges(journal, name, after, upto)
            wanted = class_states(journal, name, after, upto)
            parts = pa.concat_tables([wanted.schema.empty_table(), *changes.states()])
            assert sorted_by_key(parts).equals(wanted)
            assert len(changes) == wanted.num_rows
            asked = pa.chunked_array([[f"k{key}\0" for key in range(40)]])
            known = set(wanted["key"].to_pylist())
            assert changes.has(asked).to_pylist() == [key in known for key in asked.to_pylist()]


def test_digests_that_differ_in_their_last_bytes_only() -> None:
    """NumPy's texts ignore zeros at their ends, which digests of one length bear."""
    digests = np.frombuffer(b"a" * 15 + b"\0" + b"a" * 14 + b"\0\0", "S16")
    assert digests[0] != digests[1]
