"""The journal port: one suite that every adapter passes, and the properties of a Delta table."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn
from penstock.errors import ConfigError, Corrupt, Diverged, Fenced, JournalUnavailable
from penstock.files.shared_root import SharedRoot
from penstock.journal.api import CHANGES, TRANSACTIONS, Commit, Journal, Part, PartKind
from penstock.journal.delta import DeltaJournal
from tests.conformance.roots import ADAPTERS, ROOTS, root_of
from tests.memory_journal import MemoryJournal

TIME_US = 1_800_000_000_000_000
LONG_MS = 60_000


@pytest.fixture(params=ADAPTERS)
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    opened: Journal = (
        MemoryJournal()
        if request.param == "memory"
        else DeltaJournal(root_of(request, tmp_path), "shop")
    )
    yield opened
    opened.close()


@pytest.fixture(params=ROOTS)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> SharedRoot:
    return root_of(request, tmp_path)


def changes(epoch: int, count: int = 3) -> pa.Table:
    rows = [
        {"epoch": epoch, "entity": "Item", "key": f"i{one}", "state": b"s%d" % one}
        for one in range(count)
    ]
    return pa.Table.from_pylist(rows, CHANGES)


def transactions(epoch: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"epoch": epoch, "partition": 0, "lsn": 7, "request_id": "r7", "time_us": TIME_US}
            | {"request": b"{}", "error": None, "reply": b"\xc0"},
            {"epoch": epoch, "partition": 0, "lsn": 8, "request_id": "r8", "time_us": TIME_US}
            | {"request": b"{}", "error": "aborted", "reply": None},
        ],
        TRANSACTIONS,
    )


def commit_of(epoch: int, *parts: Part) -> Commit:
    return Commit(Epoch(epoch), {LogPartition(0): Lsn(10 * epoch)}, parts, TIME_US + epoch)


def grow(journal: Journal, upto: int) -> list[Commit]:
    """Commit the epochs that are missing up to `upto`, each with one part of each kind."""
    last = journal.last()
    added = []
    for epoch in range(0 if last is None else last.epoch + 1, upto + 1):
        part = journal.write(PartKind.CHANGES, changes(epoch), "0-0")
        other = journal.write(PartKind.TRANSACTIONS, transactions(epoch), "0-0")
        added.append(commit_of(epoch, part, other))
        journal.commit(added[-1])
    return added


def test_new_journal_is_empty(journal: Journal) -> None:
    """A journal without commits has no last one, yields none and waits in vain."""
    assert journal.last() is None
    assert list(journal.commits(BEFORE_FIRST)) == []
    assert journal.wait(BEFORE_FIRST, timeout_ms=1) is None


def test_identity_is_never_shared(journal: Journal, tmp_path: Path) -> None:
    """No two journals have one identity."""
    others = {MemoryJournal().identity, DeltaJournal(tmp_path / "other", "shop").identity}
    assert journal.identity not in others
    assert len(others) == 2


def test_commit_is_shown_as_it_was_given(journal: Journal) -> None:
    """The last commit equals the commit that was made, with parts and positions."""
    parts = [
        journal.write(PartKind.CHANGES, changes(0), "0-0"),
        journal.write(PartKind.TRANSACTIONS, transactions(0), "1-0"),
    ]
    positions = {LogPartition(1): Lsn(4), LogPartition(0): Lsn(9)}
    commit = Commit(
        Epoch(0), positions, (*parts,), 5, partitions=3, record_checksum="a", deployment="2:b"
    )
    journal.commit(commit)
    assert journal.last() == commit
    assert commit.parts_of(PartKind.TRANSACTIONS) == [parts[1]]


def test_part_is_unknown_before_its_commit(journal: Journal) -> None:
    """Writing parts changes nothing that the journal shows."""
    journal.write(PartKind.CHANGES, changes(0), "0-0")
    assert journal.last() is None


@pytest.mark.parametrize("rows", [transactions(3), changes(3), changes(0, count=0)])
def test_rows_read_back_as_written(journal: Journal, rows: pa.Table) -> None:
    """A part holds the rows and types that were written, none included."""
    kind = PartKind.TRANSACTIONS if "lsn" in rows.column_names else PartKind.CHANGES
    part = journal.write(kind, rows, "0-0")
    assert journal.read(part).equals(rows)
    assert (part.kind, part.rows) == (kind, rows.num_rows)


def test_read_returns_the_columns_that_were_asked_for(journal: Journal) -> None:
    """A reader that names columns gets those, in its own order."""
    part = journal.write(PartKind.CHANGES, changes(0), "0-0")
    assert journal.read(part, ["state", "key"]).equals(changes(0).select(["state", "key"]))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.text(), st.text(), st.none() | st.binary()), min_size=1, max_size=50))
def test_any_change_survives(journal: Journal, rows: list[tuple[str, str, bytes | None]]) -> None:
    """Every text and every bytes come back, an absent state as absent."""
    table = pa.Table.from_pylist(
        [{"epoch": 0, "entity": a, "key": b, "state": c} for a, b, c in rows], CHANGES
    )
    assert journal.read(journal.write(PartKind.CHANGES, table, "0-0")).equals(table)


def test_parts_are_read_together_as_each_alone(journal: Journal) -> None:
    """The rows of several parts come in the order of the parts; one that is missing is an error."""
    commits = grow(journal, 4)
    parts = [part for commit in commits for part in commit.parts_of(PartKind.CHANGES)]
    assert len(parts) == len(commits) > 2
    assert journal.read_all(parts, ["key"]) == [journal.read(part, ["key"]) for part in parts]
    every = [part for commit in commits for part in commit.parts]
    assert journal.read_all(every) == [journal.read(part) for part in every]
    assert journal.read_all([]) == []
    lost = Part(PartKind.CHANGES, "kind=changes/000000000007-lost.parquet", 1, 9, "00")
    with pytest.raises(Corrupt, match="is missing"):
        journal.read_all([*parts, lost])


def test_attempts_of_one_name_do_not_meet(journal: Journal) -> None:
    """Two writes under one name are two parts."""
    first = journal.write(PartKind.CHANGES, changes(0, count=1), "0-0")
    second = journal.write(PartKind.CHANGES, changes(0, count=2), "0-0")
    assert first.path != second.path
    assert (journal.read(first).num_rows, journal.read(second).num_rows) == (1, 2)


def test_part_of_two_epochs_is_refused(journal: Journal) -> None:
    """All rows of a part are of one epoch."""
    with pytest.raises(AssertionError, match="holds epochs"):
        journal.write(PartKind.CHANGES, pa.concat_tables([changes(0), changes(1)]), "0-0")


def test_rows_of_another_schema_are_refused(journal: Journal) -> None:
    """A part has its kind's columns, no others."""
    with pytest.raises(AssertionError, match="schema"):
        journal.write(PartKind.TRANSACTIONS, changes(0), "0-0")


def test_commits_come_in_order_within_bounds(journal: Journal) -> None:
    """`commits` yields (after, upto], and everything without an upper bound."""
    made = grow(journal, 5)
    assert list(journal.commits(BEFORE_FIRST)) == made
    assert list(journal.commits(Epoch(1), Epoch(3))) == made[2:4]
    assert list(journal.commits(Epoch(4), Epoch(99))) == made[5:]
    assert list(journal.commits(Epoch(5))) == []


def test_epoch_that_exists_is_fenced(journal: Journal) -> None:
    """A second commit of an epoch is refused, and the first one stays."""
    made = grow(journal, 1)
    part = journal.write(PartKind.CHANGES, changes(1), "0-1")
    for again in (commit_of(1, part), made[1]):
        with pytest.raises(Fenced, match="epoch 1"):
            journal.commit(again)
    assert list(journal.commits(BEFORE_FIRST)) == made


def test_epoch_that_leaves_a_gap_is_refused(journal: Journal) -> None:
    """A commit follows its predecessor."""
    grow(journal, 1)
    with pytest.raises(Diverged, match="epoch 3 cannot follow epoch 1"):
        journal.commit(commit_of(3))


def test_epoch_without_parts_can_be_committed(journal: Journal) -> None:
    """An epoch in which nothing was left to do is an epoch."""
    journal.commit(commit_of(0))
    assert journal.last() == commit_of(0)


@pytest.mark.parametrize("journal", ["memory", "delta"], indirect=True)
def test_commit_of_a_part_that_is_not_there_is_refused(journal: Journal) -> None:
    """A part that cannot be read back is not committed. A store is not asked: its answers prove what it has."""
    part = Part(PartKind.CHANGES, "kind=changes/000000000000-lost.parquet", 1, 9, "00")
    with pytest.raises(Corrupt, match=r"000000000000-lost\.parquet of epoch 0"):
        journal.commit(commit_of(0, part))
    assert journal.last() is None


def test_part_of_another_epoch_is_refused(journal: Journal) -> None:
    """A commit lists parts of its own epoch only."""
    part = journal.write(PartKind.CHANGES, changes(1), "0-0")
    with pytest.raises(AssertionError, match="epoch"):
        journal.commit(commit_of(0, part))


def test_unknown_part_is_corrupt(journal: Journal) -> None:
    """A part whose file is missing is an error that names file, epoch and remedy."""
    part = Part(PartKind.CHANGES, "kind=changes/000000000004-lost.parquet", 1, 9, "00")
    with pytest.raises(Corrupt, match=r"000000000004-lost\.parquet of epoch 4 is missing.*backup"):
        journal.read(part)


def test_wait_returns_a_commit_that_exists(journal: Journal) -> None:
    """Waiting for an existing epoch takes no time."""
    made = grow(journal, 2)
    assert journal.wait(Epoch(0), timeout_ms=0) == made[1]


def test_wait_wakes_when_the_epoch_commits(journal: Journal) -> None:
    """A waiting thread gets the commit that another one makes."""
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(journal.wait, Epoch(epoch), LONG_MS) for epoch in (-1, 0)]
        made = grow(journal, 1)
        assert [one.result() for one in waiting] == made


def test_one_of_many_rivals_wins_each_epoch(journal: Journal) -> None:
    """However many threads commit an epoch, one succeeds and the others are fenced."""
    barrier = threading.Barrier(4)

    def rival(number: int) -> list[int]:
        won = []
        for epoch in range(5):
            barrier.wait(LONG_MS / 1000)
            try:
                journal.commit(Commit(Epoch(epoch), {LogPartition(0): Lsn(number)}, (), number))
                won.append(epoch)
            except Fenced:
                continue
        return won

    with ThreadPoolExecutor() as pool:
        won = [epoch for wins in pool.map(rival, range(4)) for epoch in wins]
    assert sorted(won) == [0, 1, 2, 3, 4]
    assert [one.epoch for one in journal.commits(BEFORE_FIRST)] == [0, 1, 2, 3, 4]


def test_checkpoint_changes_nothing_that_is_shown(journal: Journal) -> None:
    """Commits before, between and after checkpoints are all there."""
    journal.checkpoint()
    made = grow(journal, 2)
    journal.checkpoint()
    journal.checkpoint()
    made += grow(journal, 4)
    journal.checkpoint()
    assert list(journal.commits(BEFORE_FIRST)) == made
    assert journal.last() == made[-1]


@pytest.mark.parametrize(
    "use",
    [
        lambda journal: journal.last(),
        lambda journal: list(journal.commits(BEFORE_FIRST)),
        lambda journal: journal.wait(BEFORE_FIRST, 0),
        lambda journal: journal.commit(commit_of(1)),
        lambda journal: journal.write(PartKind.CHANGES, changes(1), "0-0"),
        lambda journal: journal.checkpoint(),
        lambda journal: journal.read(Part(PartKind.CHANGES, "x", 1, 1, "00")),
    ],
)
def test_closed_journal_is_unavailable(journal: Journal, use: Callable[[Journal], object]) -> None:
    """After `close` nothing works, and says so."""
    grow(journal, 0)
    journal.close()
    with pytest.raises(JournalUnavailable, match="closed"):
        use(journal)


def test_close_wakes_who_waits(journal: Journal) -> None:
    """A thread that waits for an epoch learns that the journal was closed."""
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(journal.wait, BEFORE_FIRST, LONG_MS)
        journal.close()
        with pytest.raises(JournalUnavailable, match="closed"):
            waiting.result()


# Properties that only a Delta table has.


def test_reopened_journal_is_the_same(root: SharedRoot) -> None:
    """Identity and commits outlive the process's objects."""
    first = DeltaJournal(root, "shop")
    made = grow(first, 3)
    second = DeltaJournal(root, "shop")
    assert second.identity == first.identity
    assert second.last() == made[-1]
    assert list(second.commits(BEFORE_FIRST)) == made


def test_wait_sees_what_another_journal_object_commits(root: SharedRoot) -> None:
    """A gateway's journal follows the driver's through the directory alone."""
    driver, gateway = DeltaJournal(root, "shop"), DeltaJournal(root, "shop")
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(gateway.wait, Epoch(epoch), LONG_MS) for epoch in (-1, 0, 1)]
        made = grow(driver, 2)
        assert [one.result() for one in waiting] == made


def test_second_driver_is_fenced(root: SharedRoot) -> None:
    """Of two open journals on one directory, the journal that commits later fails, without a change."""
    ours, theirs = DeltaJournal(root, "shop"), DeltaJournal(root, "shop")
    assert ours.last() is None
    assert theirs.last() is None
    made = grow(ours, 0)
    with pytest.raises(Fenced, match="another driver runs 'shop'"):
        theirs.commit(commit_of(0))
    assert theirs.last() == made[0]


def test_other_application_is_turned_away(root: SharedRoot) -> None:
    """A directory belongs to the application that created it."""
    DeltaJournal(root, "shop")
    with pytest.raises(ConfigError, match="belongs to the application 'shop', not to 'bank'"):
        DeltaJournal(root, "bank")


def check_table(path: Path, made: list[Commit]) -> None:
    """Read the table with delta-rs, which knows nothing of Penstock."""
    table = DeltaTable(path)
    last = made[-1].epoch
    assert table.version() == last + 1
    assert table.transaction_version("shop") == last
    assert table.metadata().name == "shop"
    assert sorted(table.file_uris()) == sorted(
        str(path / part.path) for commit in made for part in commit.parts
    )
    rows = table.to_pyarrow_table(filters=[("epoch", "=", last), ("kind", "=", "changes")])
    assert rows.select(CHANGES.names).cast(CHANGES).equals(changes(last))
    assert table.to_pyarrow_table().num_rows == 5 * len(made)


def test_any_delta_reader_sees_the_epochs(tmp_path: Path) -> None:
    """To delta-rs the journal is a table whose version is the epoch plus one."""
    made = grow(DeltaJournal(tmp_path, "shop"), 4)
    check_table(tmp_path, made)


def test_delta_history_names_the_epochs(tmp_path: Path) -> None:
    """Each version's commit information carries the epoch, log positions and checksums."""
    made = grow(DeltaJournal(tmp_path, "shop"), 1)
    newest = json.loads(DeltaTable(tmp_path).history(1)[0]["penstock"])
    assert (newest["epoch"], newest["positions"]) == (1, [[0, 10]])
    assert newest["parts"][0]["checksum"] == made[1].parts[0].checksum


def test_delta_reader_needs_only_the_checkpoint(tmp_path: Path) -> None:
    """A checkpoint built upon another says everything that the commits before it said."""
    journal = DeltaJournal(tmp_path, "shop")
    made = grow(journal, 2)
    journal.checkpoint()
    made += grow(journal, 5)
    journal.checkpoint()
    for commit in (tmp_path / "_delta_log").glob("0*.json"):
        commit.unlink()
    check_table(tmp_path, made)


def test_superseded_checkpoints_are_removed(tmp_path: Path) -> None:
    """Two checkpoints stay, and every commit."""
    journal = DeltaJournal(tmp_path, "shop")
    for epoch in range(5):
        grow(journal, epoch)
        journal.checkpoint()
    names = sorted(file.name for file in (tmp_path / "_delta_log").glob("0*"))
    checkpoints = [f"{version:020}.checkpoint.parquet" for version in (4, 5)]
    assert names == sorted([f"{version:020}.json" for version in range(6)] + checkpoints)
