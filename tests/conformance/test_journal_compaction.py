"""Compaction and forgetting change nothing that the journal's port shows, but for forgotten epochs."""

import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Corrupt, Diverged, Fenced
from penstock.journal.api import Commit, CompactionPolicy, Journal, PartKind
from penstock.journal.delta import DeltaJournal
from tests import forked
from tests.conformance.test_journal import changes, commit_of, grow
from tests.memory_journal import MemoryJournal

SMALL = CompactionPolicy(newest=2, epochs=4, grace_s=0)
STEPS = ("segment-written", "segment-indexed", "segment-condensed", "segment-reclaimed")
FORGETTING = ("floor-raised", "floor-condensed", "floor-removed")


def shown(journal: Journal) -> list[tuple[Commit, list[pa.Table]]]:
    return [
        (commit, [journal.read(part) for part in commit.parts])
        for commit in journal.commits(BEFORE_FIRST)
    ]


def compacted(path: Path, epochs: int, keep: CompactionPolicy = SMALL) -> DeltaJournal:
    journal = DeltaJournal(path, "shop")
    grow(journal, epochs - 1)
    journal.compact(keep)
    return journal


def files_in(path: Path) -> list[str]:
    return sorted(str(one.relative_to(path)) for one in path.rglob("*") if one.is_file())


def test_compaction_changes_nothing_that_is_shown(tmp_path: Path) -> None:
    """Commits, parts and rows are the same before and after, here and for a process that opens it."""
    journal = DeltaJournal(tmp_path, "shop")
    grow(journal, 10)
    before = shown(journal)
    done = journal.compact(SMALL)
    assert (done.segments, done.epochs) == (2, 8)
    assert shown(journal) == before
    assert shown(DeltaJournal(tmp_path, "shop")) == before
    assert journal.first() == 0


def test_reader_that_looked_before_finds_its_parts_afterwards(tmp_path: Path) -> None:
    """A commit that was read before the merge names parts that can be read after it."""
    reader = DeltaJournal(tmp_path, "shop")
    journal = DeltaJournal(tmp_path, "shop")
    grow(journal, 10)
    early = list(reader.commits(BEFORE_FIRST))
    expected = [reader.read(part) for commit in early for part in commit.parts]
    journal.compact(SMALL)
    assert [reader.read(part) for commit in early for part in commit.parts] == expected
    part = early[3].parts_of(PartKind.CHANGES)[0]
    assert reader.read(part, ["key"]).column_names == ["key"]
    assert list(reader.commits(Epoch(2), Epoch(5))) == early[3:6]


def test_compaction_leaves_few_files(tmp_path: Path) -> None:
    """Files that segments have replaced are removed after the grace period, and not before."""
    journal = compacted(tmp_path, 43, SMALL._replace(grace_s=3_600))
    many = len(files_in(tmp_path))
    removed = journal.compact(SMALL).removed
    assert removed == 3 * 40
    assert len(files_in(tmp_path)) == many - removed
    assert len(list((tmp_path / "_delta_log").glob("*.json"))) == 1 + 3


def test_rows_come_in_bulk_and_in_order(tmp_path: Path) -> None:
    """Rows of a range are those of its commits, wherever they lie."""
    journal = compacted(tmp_path, 11)
    for after in range(-1, 10):
        for upto in range(after, 11):
            pieces = list(
                journal.rows(PartKind.CHANGES, Epoch(after), Epoch(upto), ["epoch", "key"])
            )
            rows = [row for _, table in pieces for row in table["epoch"].to_pylist()]
            assert rows == [epoch for epoch in range(after + 1, upto + 1) for _ in range(3)]
            assert [last for last, _ in pieces][-1:] == ([upto] if upto > after else [])


def test_delta_readers_see_every_row_once(tmp_path: Path) -> None:
    """Another engine counts each epoch's rows once, after merging and after forgetting."""
    journal = compacted(tmp_path, 11)
    journal.checkpoint()

    def seen() -> list[int]:
        table = DeltaTable(str(tmp_path)).to_pyarrow_table(filters=[("kind", "=", "changes")])
        return sorted(table["epoch"].to_pylist())

    assert seen() == sorted(list(range(11)) * 3)
    assert journal.forget(Epoch(6)) == 4
    assert seen() == sorted(list(range(4, 11)) * 3)


def test_large_epochs_are_indexed_and_not_rewritten(tmp_path: Path) -> None:
    """Where merging would save few files the parts stay, listed by an index, until forgotten."""
    journal = DeltaJournal(tmp_path, "shop")
    grow(journal, 10)
    before = shown(journal)
    parts = len(list(tmp_path.glob("kind=*/*")))
    assert journal.compact(SMALL._replace(small=1)).segments == 2
    assert shown(DeltaJournal(tmp_path, "shop")) == before
    assert len(list(tmp_path.glob("kind=*/*"))) == parts
    assert len(list((tmp_path / "_delta_log").glob("*.json"))) == 1 + 3
    seen = DeltaTable(str(tmp_path)).to_pyarrow_table(filters=[("kind", "=", "changes")])
    assert sorted(seen["epoch"].to_pylist()) == sorted(list(range(11)) * 3)
    journal.forget(Epoch(5))
    assert len(list(tmp_path.glob("kind=*/*"))) == parts - 8
    assert shown(journal) == before[4:]


@pytest.mark.parametrize("small", [1, 1 << 20])
def test_compaction_removes_what_no_commit_can_list(tmp_path: Path, small: int) -> None:
    """Parts and drafts of failed attempts go with their epochs, merged or not; later ones stay."""
    journal = DeltaJournal(tmp_path, "shop")
    stale = [journal.write(PartKind.CHANGES, changes(epoch), "0-9") for epoch in (0, 7, 8, 11)]
    log = tmp_path / "_delta_log"
    drafts = [log / f".{version:020}.json.0badcafe.tmp" for version in (1, 8, 9, 12)]
    for draft in drafts:
        draft.write_bytes(b"{")
    grow(journal, 10)
    before = shown(journal)
    assert journal.compact(SMALL._replace(small=small)).epochs == 8
    assert [(tmp_path / part.path).exists() for part in stale] == [False, False, True, True]
    assert [draft.exists() for draft in drafts] == [False, False, True, True]
    assert shown(journal) == before


@pytest.mark.parametrize("kind", ["memory", "delta"])
def test_forgotten_epochs_are_gone_and_said_to_be(kind: str, tmp_path: Path) -> None:
    """Epochs older than the given one may go; the others are unchanged, and a gap is an error."""
    journal: Journal = MemoryJournal() if kind == "memory" else DeltaJournal(tmp_path, "shop")
    added = grow(journal, 10)
    journal.compact(SMALL)
    first = journal.forget(Epoch(4))
    assert first == journal.first() == 4
    assert list(journal.commits(BEFORE_FIRST)) == added[4:]
    assert list(journal.commits(Epoch(6))) == added[7:]
    with pytest.raises(Diverged, match="no epoch 2"):
        list(journal.rows(PartKind.CHANGES, Epoch(1), Epoch(9), ["key"]))
    assert journal.forget(Epoch(2)) == 4


def test_newest_epochs_are_never_forgotten(tmp_path: Path) -> None:
    """The last segment and later epochs stay, for any argument."""
    journal = compacted(tmp_path, 11)
    assert journal.forget(Epoch(1_000)) == 4
    assert DeltaJournal(tmp_path, "shop").first() == 4
    assert [one.epoch for one in journal.commits(BEFORE_FIRST)] == list(range(4, 11))


def test_driver_that_slept_while_its_epoch_was_merged_is_fenced(tmp_path: Path) -> None:
    """A name that is free because the epoch lies in a segment commits nothing."""
    sleeper = DeltaJournal(tmp_path, "shop")
    grow(sleeper, 2)
    awake = DeltaJournal(tmp_path, "shop")
    added = grow(awake, 11)
    awake.compact(SMALL)
    part = sleeper.write(PartKind.CHANGES, changes(3, 1), "late")
    with pytest.raises(Fenced):
        sleeper.commit(commit_of(3, part))
    assert list(DeltaJournal(tmp_path, "shop").commits(Epoch(2))) == added


def test_reader_that_slept_while_all_it_knew_was_merged_goes_on(tmp_path: Path) -> None:
    """A reader that looks after a long time finds the newest epoch, though the next file is gone."""
    sleeper = DeltaJournal(tmp_path, "shop")
    grow(sleeper, 2)
    added = grow(DeltaJournal(tmp_path, "shop"), 12)
    DeltaJournal(tmp_path, "shop").compact(SMALL)
    assert sleeper.last() == added[-1]
    assert sleeper.wait(Epoch(2), 0) == added[0]
    assert list(sleeper.commits(Epoch(2))) == added


def test_two_processes_do_not_compact_at_once(tmp_path: Path) -> None:
    """The second process does nothing."""
    journal = DeltaJournal(tmp_path, "shop")
    grow(journal, 10)
    inner = DeltaJournal(tmp_path, "shop")
    found = []
    journal.compact(SMALL, lambda _: found.append(inner.compact(SMALL)))
    assert all(one.segments == 0 for one in found)
    assert len(found) > len(STEPS)


@pytest.mark.parametrize("victim", ["index", "file", "middle"])
def test_damage_is_found(tmp_path: Path, victim: str) -> None:
    """A flipped byte or a missing segment is corrupt, and no other rows are given instead."""
    compacted(tmp_path, 13)
    indexes = sorted((tmp_path / "_segments").glob("*.index"))
    if victim == "middle":
        indexes[1].unlink()
    else:
        path = indexes[1]
        if victim == "file":
            path = sorted((tmp_path / "kind=changes").glob("segment-*"))[1]
        data = path.read_bytes()
        path.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    with pytest.raises(Corrupt):
        shown(DeltaJournal(tmp_path, "shop"))


@settings(max_examples=12, deadline=None)
@given(
    work=st.lists(
        st.one_of(
            st.tuples(st.just("grow"), st.integers(1, 9)),
            st.tuples(st.just("compact"), st.integers(0, 6)),
            st.tuples(st.just("forget"), st.integers(0, 40)),
            st.tuples(st.just("reopen"), st.just(0)),
        ),
        max_size=12,
    )
)
def test_any_history_of_maintenance_shows_the_same_epochs(
    tmp_path_factory: pytest.TempPathFactory, work: list[tuple[str, int]]
) -> None:
    """For any order of merging and forgetting, the remaining epochs are as committed."""
    path = tmp_path_factory.mktemp("journal")
    journal, truth = DeltaJournal(path, "shop"), MemoryJournal()
    witness = DeltaJournal(path, "shop")
    for what, number in work:
        if what == "grow":
            last = truth.last()
            for _ in range(number):
                epoch = 0 if last is None else last.epoch + 1
                part = journal.write(PartKind.CHANGES, changes(epoch, epoch % 3), "p")
                kept = truth.write(PartKind.CHANGES, changes(epoch, epoch % 3), "p")
                journal.commit(commit_of(epoch, part))
                truth.commit(commit_of(epoch, kept))
                last = truth.last()
        elif what == "compact":
            small = 0 if number % 2 else 1 << 20  # merged or not
            journal.compact(
                CompactionPolicy(newest=number % 3, epochs=1 + number, small=small, grace_s=0)
            )
        elif what == "forget":
            journal.forget(Epoch(number))
        else:
            journal = DeltaJournal(path, "shop")
        expected = list(truth.commits(Epoch(journal.first() - 1)))
        for reader in (journal, witness):
            found = list(reader.commits(BEFORE_FIRST))
            assert [one.epoch for one in found] == [one.epoch for one in expected]
            for one, wanted in zip(found, expected, strict=True):
                assert [reader.read(part) for part in one.parts] == [
                    truth.read(part) for part in wanted.parts
                ]


_KILLED = """
import os, signal, sys
from pathlib import Path
from penstock.base.ids import Epoch
from penstock.journal.api import CompactionPolicy
from penstock.journal.delta import DeltaJournal

step, journal = sys.argv[2], DeltaJournal(Path(sys.argv[1]), "shop")

def reached(name):
    if name == step:
        os.kill(os.getpid(), signal.SIGKILL)

journal.compact(CompactionPolicy(newest=2, epochs=4, grace_s=0), reached)
journal.forget(Epoch(7), reached)
"""


@pytest.mark.parametrize("step", STEPS + FORGETTING)
def test_kill_at_any_step_leaves_every_epoch_once(tmp_path: Path, step: str) -> None:
    """A process that dies at a step leaves a journal that reads the same, and is compacted later."""
    journal = DeltaJournal(tmp_path, "shop")
    added = grow(journal, 14)
    done = forked.run(_KILLED, tmp_path, step)
    assert done.returncode == -signal.SIGKILL, done.stderr
    again = DeltaJournal(tmp_path, "shop")
    first = again.first()
    assert list(again.commits(BEFORE_FIRST)) == added[first:]
    again.compact(SMALL)
    seen = DeltaTable(str(tmp_path)).to_pyarrow_table(filters=[("kind", "=", "changes")])
    assert sorted(seen["epoch"].to_pylist()) == sorted(list(range(first, 15)) * 3)
    again.forget(Epoch(7))
    assert [rows["epoch"][0].as_py() for _, (rows, _) in shown(again)] == list(range(4, 15))
    seen = DeltaTable(str(tmp_path)).to_pyarrow_table(filters=[("kind", "=", "changes")])
    counted = pc.value_counts(seen["epoch"]).to_pylist()
    assert sorted((one["values"], one["counts"]) for one in counted) == [
        (epoch, 3) for epoch in range(4, 15)
    ]
    left = files_in(tmp_path)
    assert len([one for one in left if "segment-" in one]) == 2 * len(
        list((tmp_path / "_segments").glob("*.index"))
    )
