"""Stores of a host that holds a part of the state: only its partitions are fed, and a move copies what is here."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.base.ids import EntityKey, Epoch, LogPartition, Lsn
from penstock.errors import StateUnavailable
from penstock.journal.api import CHANGES, Commit, PartKind
from penstock.state.lmdb_reader import LmdbReader
from penstock.state.partition_spec import PartitionSpec
from penstock.state.stores import Stores
from tests.memory_journal import MemoryJournal

KEYS = [f"k{number}" for number in range(200)]
LAST = Epoch(1)


class Part:
    """A host that holds some partitions of each number."""

    def __init__(self, *own: int) -> None:
        self.own = set(own)
        self.coming: set[int] = set()

    def is_own(self, spec: PartitionSpec) -> bool:
        return spec.partition in self.own

    def keeps(self, spec: PartitionSpec) -> bool:
        return spec.partition in self.own | self.coming

    def has_others(self, spec: PartitionSpec) -> bool:
        return True

    def reader(self, spec: PartitionSpec, epoch: Epoch, take: Callable[[], LmdbReader]) -> Any:
        raise AssertionError("nothing is read elsewhere")


class Told(MemoryJournal):
    """A journal that counts how often its rows are read."""

    reads = 0

    def rows(self, *arguments: Any, **named: Any) -> Iterator[tuple[Epoch, pa.Table]]:
        self.reads += 1
        return super().rows(*arguments, **named)


@pytest.fixture
def journal() -> Told:
    made = Told()
    for epoch in range(LAST + 1):
        states = [b"%d" % epoch] * len(KEYS)
        rows = pa.table([[epoch] * len(KEYS), ["Item"] * len(KEYS), KEYS, states], schema=CHANGES)
        part = made.write(PartKind.CHANGES, rows, f"epoch-{epoch}")
        made.commit(Commit(Epoch(epoch), {LogPartition(0): Lsn(0)}, (part,), time_us=0))
    return made


def test_only_own_partitions_are_fed(tmp_path: Path, journal: Told) -> None:
    """One that is coming is built elsewhere, and then fed, too; what is not kept is deleted."""
    part = Part(0, 2)
    with closing(Stores(tmp_path, journal, 4, boot_id="b", elsewhere=part)) as stores:
        part.coming = {1}
        for number in range(4):
            stores.catch_up_one(number, LAST)
        assert stores.held() == {0: LAST, 2: LAST}
        with pytest.raises(StateUnavailable, match="not on this host"), stores.some_at(LAST, [1]):
            pass
        with stores.some_at(LAST, [0, 2]) as readers:
            rows = {key for reader in readers.values() for key, _ in reader.items()}
        assert 0 < len(rows) < len(KEYS)
        part.own, part.coming = {0}, set()
        with closing(Stores(tmp_path, journal, 4, boot_id="b", elsewhere=part)) as others:
            assert not others.leave_others(), "a process has it open"
            assert stores.leave_others()
        assert stores.held() == {0: LAST}


def test_a_move_copies_the_rows_that_are_here(tmp_path: Path, journal: Told) -> None:
    """The journal is read for a partition only if another host has some of its rows."""
    part = Part(0, 1)
    with closing(Stores(tmp_path, journal, 4, boot_id="b", elsewhere=part)) as stores:
        for number in (0, 1):
            stores.catch_up_one(number, LAST)
        whole: dict[EntityKey, bytes] = {}
        with stores.some_at(LAST, [0, 1]) as readers:
            for reader in readers.values():
                whole.update(reader.items())
        stores.use(8)
        part.own = {0, 1, 2, 3}
        read = journal.reads
        for number in part.own:
            stores.catch_up_one(number, LAST, 4)
        assert journal.reads == read
        moved: dict[EntityKey, bytes] = {}
        with stores.some_at(LAST, part.own) as readers:
            for reader in readers.values():
                moved.update(reader.items())
        assert moved == whole
        part.own = {4}
        stores.catch_up_one(4, LAST, 4)
        assert journal.reads > read
