"""Feeds: each event and each change once from any epoch, while the journal is maintained."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn
from penstock.errors import Corrupt, Diverged, Gone, QueryError, RequestError
from penstock.journal.api import CHANGES, Commit, CompactionPolicy, Journal, PartKind, newest_epoch
from penstock.journal.delta import DeltaJournal
from penstock.runtime.spark import feed as feeds
from penstock.runtime.spark.feed import (
    ClassFeed,
    Feed,
    Span,
    Start,
    StreamFeed,
    first_epoch,
    rows_of,
    spans_of,
)
from tests.feed_app import app
from tests.stream_journal import publish

MERGE_ALL = CompactionPolicy(newest=0, epochs=4, grace_s=0)
SALE = {"item": "tea", "pieces": 1, "hour": "12:00:00", "waited": None}


def journal_in(folder: Path) -> DeltaJournal:
    return DeltaJournal(folder / "journal", app.name, app.stored)


def change(journal: Journal, stocks: Mapping[str, int | None]) -> Epoch:
    """Commit an epoch in which items get a stock; None deletes."""
    encode = app.entities["Item"].encode
    states = {
        name: None if stock is None else encode({"name": name, "stock": stock})
        for name, stock in stocks.items()
    }
    return change_states(journal, "Item", states)


def change_states(journal: Journal, entity: str, states: Mapping[str, bytes | None]) -> Epoch:
    """Commit an epoch in which entities get states; None deletes."""
    last = journal.last()
    epoch = Epoch(0 if last is None else last.epoch + 1)
    rows = [
        {"epoch": epoch, "entity": entity, "key": name, "state": state}
        for name, state in states.items()
    ]
    part = journal.write(PartKind.CHANGES, pa.Table.from_pylist(rows, CHANGES), "changes")
    atoms = {} if last is None else last.atoms
    positions = {LogPartition(0): Lsn(epoch + 1)}
    journal.commit(Commit(epoch, positions, (part,), 1_000_000 * epoch, atoms))
    return epoch


def read(journal: Journal, feed: Feed, spans: Sequence[Span]) -> list[dict[str, Any]]:
    return [
        row for span in spans for rows in rows_of(journal, feed, span) for row in rows.to_pylist()
    ]


def planned(journal: Journal, feed: Feed, first: int = 0, atom: int = 0) -> list[Span]:
    last = journal.last()
    assert last is not None
    return spans_of(journal, feed, Span(Epoch(first), last.epoch, atom))


@pytest.fixture
def words(tmp_path: Path) -> DeltaJournal:
    """Give a journal of 12 epochs, whose stream `words` has two atoms in each third epoch."""
    journal = journal_in(tmp_path)
    for epoch in range(12):
        atoms = [[f"{epoch}a", f"{epoch}b"], [f"{epoch}c"]] if epoch % 3 == 0 else []
        publish(journal, {"words": atoms, "sales": [[SALE]]})
    return journal


def test_spans_cover_each_row_once(words: DeltaJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large and small spans have the same rows, from any epoch on."""
    feed = StreamFeed(app, "words", wide=False)
    for size in (1, 1_000, 1 << 30):
        monkeypatch.setattr(feeds, "SPAN_BYTES", size)
        for first in range(12):
            rows = read(words, feed, planned(words, feed, first))
            expected = [
                (epoch, f"{epoch}{name}")
                for epoch in range(first, 12)
                if epoch % 3 == 0
                for name in "abc"
            ]
            assert [(row["epoch"], row["event"]) for row in rows] == expected


def test_pieces_of_an_epoch_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large epoch comes in several tables, whose atoms are whole and in order."""
    monkeypatch.setattr(feeds, "PIECE_ROWS", 10)
    journal = journal_in(tmp_path)
    publish(journal, {"words": [["x"] * count for count in (3, 0, 4, 25, 6, 1, 0)]}, parts=3)
    feed = StreamFeed(app, "words", wide=False)
    tables = list(rows_of(journal, feed, Span(Epoch(0), Epoch(0))))
    assert [sorted(set(table["atom"].to_pylist())) for table in tables] == [[0, 2], [3, 4, 5]]


def test_compaction_between_planning_and_reading_changes_nothing(words: DeltaJournal) -> None:
    """A span that was planned before its files were merged gives the same rows afterwards."""
    feed = StreamFeed(app, "words", wide=False)
    spans = planned(words, feed)
    before = read(words, feed, spans)
    assert words.compact(MERGE_ALL).epochs == 12
    assert read(words, feed, spans) == before
    assert read(words, feed, planned(words, feed)) == before


def test_forgotten_epoch_is_an_error_with_the_oldest_one(words: DeltaJournal) -> None:
    """Neither a plan nor a read of a planned span skips an epoch that retention has removed."""
    feed = StreamFeed(app, "words", wide=False)
    spans = planned(words, feed)
    words.compact(MERGE_ALL)
    assert words.forget(Epoch(5)) == 4
    with pytest.raises(Gone, match=r"epoch 0 is gone.*oldest epoch is 4"):
        planned(words, feed)
    with pytest.raises(Gone, match="oldest epoch is 4"):
        read(words, feed, spans)
    with pytest.raises(Gone, match="epoch 3 is gone"):
        first_epoch(words, "words", Start(epoch=3))
    with pytest.raises(Gone, match="oldest atom is 4"):
        first_epoch(words, "words", Start(atom=3))
    assert first_epoch(words, "words", Start()) == Span(Epoch(4), Epoch(4))


def test_start_is_an_epoch_an_atom_or_an_end(words: DeltaJournal) -> None:
    """A start at an atom leaves out the earlier atoms of its epoch; a start after the newest epoch waits."""
    feed = StreamFeed(app, "words", wide=False)
    start = first_epoch(words, "words", Start(atom=3))
    assert start == Span(Epoch(3), Epoch(3), 3)
    [row] = [row for row in read(words, feed, planned(words, feed, 3, 3)) if row["epoch"] == 3]
    assert (row["atom"], row["event"]) == (3, "3c")
    assert first_epoch(words, "words", Start(atom=8)).first == 12
    assert first_epoch(words, "words", Start(latest=True)).first == 12
    assert first_epoch(words, "words", Start(epoch=12)).first == 12
    with pytest.raises(QueryError, match="epoch 13: the journal holds epochs 0 to 11"):
        first_epoch(words, "words", Start(epoch=13))
    with pytest.raises(RequestError, match="8 atoms"):
        first_epoch(words, "words", Start(atom=9))


def test_empty_journal_has_a_start(tmp_path: Path) -> None:
    """Before the first epoch, every start is epoch 0."""
    journal = journal_in(tmp_path)
    assert newest_epoch(journal) == BEFORE_FIRST
    for start in (Start(), Start(latest=True), Start(epoch=0), Start(atom=0)):
        assert first_epoch(journal, "words", start).first == 0


def test_changes_of_a_class_are_upserts_and_deletes(tmp_path: Path) -> None:
    """A change has the entity after its epoch; a deletion has none."""
    journal = journal_in(tmp_path)
    change(journal, {"tea": 3, "cup": 1})
    publish(journal, {"words": [["x"]]})
    change(journal, {"tea": None, "pot": 5})
    feed = ClassFeed(app, "Item", wide=False)
    rows = read(journal, feed, planned(journal, feed))
    assert [(row["epoch"], row["key"], row["kind"], row["after"]) for row in rows] == [
        (0, "cup", "upsert", {"name": "cup", "stock": 1}),
        (0, "tea", "upsert", {"name": "tea", "stock": 3}),
        (2, "pot", "upsert", {"name": "pot", "stock": 5}),
        (2, "tea", "delete", None),
    ]
    assert [row["time"].timestamp() for row in rows] == [0, 0, 2, 2]


def test_rows_of_a_task_are_changes(tmp_path: Path) -> None:
    """The rows of a task are read by the names of workflow and task."""
    journal = journal_in(tmp_path)
    rows_of_task = app.stored["count.Count"]
    state = rows_of_task.encode({rows_of_task.key_name: "tea", "total": 3})
    change_states(journal, "count.Count", {"tea": state})
    feed = ClassFeed(app, "count.Count", wide=False)
    [row] = read(journal, feed, planned(journal, feed))
    assert (row["key"], row["after"]) == ("tea", {"key": "tea", "total": 3})


def test_large_value_asks_for_wide_columns(tmp_path: Path) -> None:
    """A value that does not fit is an error that names the option; wide columns show it."""
    journal = journal_in(tmp_path)
    change(journal, {"tea": 2**64 - 1})
    publish(journal, {"sales": [[SALE | {"pieces": 2**64 - 1}]]})
    narrow: list[Feed] = [StreamFeed(app, "sales", wide=False), ClassFeed(app, "Item", wide=False)]
    for feed in narrow:
        with pytest.raises(QueryError, match="wide"):
            read(journal, feed, planned(journal, feed))
    events, changes = StreamFeed(app, "sales", wide=True), ClassFeed(app, "Item", wide=True)
    assert read(journal, events, planned(journal, events))[0]["pieces"] == 2**64 - 1
    assert read(journal, changes, planned(journal, changes))[0]["after"]["stock"] == 2**64 - 1


def test_damage_is_an_error(words: DeltaJournal, tmp_path: Path) -> None:
    """A row that does not fit its class, and a part with a changed byte, stop the read."""
    epoch = Epoch(12)
    state = {"epoch": epoch, "entity": "Item", "key": "tea", "state": b"\xc1"}
    part = words.write(PartKind.CHANGES, pa.Table.from_pylist([state], CHANGES), "damaged")
    words.commit(Commit(epoch, {LogPartition(0): Lsn(99)}, (part,), 0, {"words": 8, "sales": 12}))
    changes = ClassFeed(app, "Item", wide=False)
    with pytest.raises((Diverged, Corrupt)):
        read(words, changes, planned(words, changes))
    events = StreamFeed(app, "words", wide=False)
    spans = planned(words, events)
    for path in (tmp_path / "journal" / "kind=events").glob("*.parquet"):
        path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    with pytest.raises(Corrupt):
        read(words, events, spans)


def test_unknown_names_have_near_misses() -> None:
    """An unknown stream or class names similar ones."""
    with pytest.raises(RequestError, match="did you mean words"):
        StreamFeed(app, "word", wide=False)
    with pytest.raises(RequestError, match="did you mean Item"):
        ClassFeed(app, "Items", wide=False)
