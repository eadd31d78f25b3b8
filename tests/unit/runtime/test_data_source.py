"""The data source `penstock` as Spark calls it: options, schema, offsets and rows, without a session."""

import pickle
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from penstock.base.ids import Epoch
from penstock.errors import ConfigError, Diverged, Gone, RequestError
from penstock.journal.api import CompactionPolicy
from penstock.journal.delta import DeltaJournal
from penstock.process.data_directory import DataDirectory
from penstock.runtime.spark.data_source import (
    FeedStreamReader,
    Offset,
    SparkSource,
    options_of,
)
from tests.feed_app import app
from tests.stream_journal import publish

APP = "tests.feed_app:app"
EVERYTHING = ReadAllAvailable()


@pytest.fixture
def journal(tmp_path: Path) -> DeltaJournal:
    """Give a journal of 5 epochs with two words each."""
    journal = DataDirectory(tmp_path).open_journal(app)
    for epoch in range(5):
        publish(journal, {"words": [[f"{epoch}a"], [f"{epoch}b"]]})
    return journal


def source_of(data: Path, **options: str) -> SparkSource:
    """Return a source as it arrives in another process."""
    source = SparkSource({"app": APP, "data": str(data), **options})
    source.schema()
    return pickle.loads(pickle.dumps(source))  # type: ignore[no-any-return]


def stream_reader(data: Path, **options: str) -> FeedStreamReader:
    source = source_of(data, stream="words", **options)
    return source.streamReader(source.schema())


def rows_between(reader: FeedStreamReader, start: Offset, end: Offset) -> list[dict[str, Any]]:
    partitions = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    return [row for part in partitions for batch in reader.read(part) for row in batch.to_pylist()]


def words_between(reader: FeedStreamReader, start: Offset, end: Offset) -> list[str]:
    return [row["event"] for row in rows_between(reader, start, end)]


def test_batches_read_each_event_once(journal: DeltaJournal, tmp_path: Path) -> None:
    """Batches of two epochs follow each other without a gap; the same offsets give the same rows later."""
    reader = stream_reader(tmp_path, maxEpochsPerBatch="2")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxFiles(2)
    offsets, words = [reader.initialOffset()], []
    while (end := reader.latestOffset(offsets[-1], limit)) != offsets[-1]:
        words.append(words_between(reader, offsets[-1], end))
        offsets.append(end)
    assert words == [["0a", "0b", "1a", "1b"], ["2a", "2b", "3a", "3b"], ["4a", "4b"]]
    journal.compact(CompactionPolicy(newest=0, epochs=4, grace_s=0))
    publish(journal, {"words": [["new"]]})
    again = stream_reader(tmp_path)
    replayed = [words_between(again, *pair) for pair in pairwise(offsets)]
    assert replayed == words
    assert words_between(again, offsets[-1], again.latestOffset(offsets[-1], EVERYTHING)) == ["new"]


def test_query_starts_at_an_atom(journal: DeltaJournal, tmp_path: Path) -> None:
    """`start` of `atom=3` leaves out the first atom of its epoch, and only in the first batch."""
    reader = stream_reader(tmp_path, start="atom=3")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxFiles(2))
    assert words_between(reader, start, end) == ["1b", "2a", "2b"]
    assert "atom" not in end
    assert journal.first() == 0


def test_query_of_available_epochs_ends(journal: DeltaJournal, tmp_path: Path) -> None:
    """After the trigger `availableNow` was prepared, new epochs wait for the next query."""
    reader = stream_reader(tmp_path)
    reader.prepareForTriggerAvailableNow()
    publish(journal, {"words": [["late"]]})
    start = reader.initialOffset()
    end = reader.latestOffset(start, EVERYTHING)
    assert end["epoch"] == 4
    assert reader.latestOffset(end, EVERYTHING) == end
    assert reader.reportLatestOffset()["epoch"] == 5
    reader.stop()


def test_checkpoint_of_another_journal_is_refused(journal: DeltaJournal, tmp_path: Path) -> None:
    """An offset of another journal, or beyond the newest epoch, is an error instead of a gap."""
    reader = stream_reader(tmp_path)
    beyond = {"journal": journal.identity, "epoch": 9}
    for offset in (beyond, {"journal": "another", "epoch": 2}):
        with pytest.raises(Diverged, match="give the query a new checkpoint"):
            reader.latestOffset(offset, EVERYTHING)
        with pytest.raises(Diverged, match="give the query a new checkpoint"):
            reader.partitions(offset, beyond)


def test_query_behind_retention_is_refused(journal: DeltaJournal, tmp_path: Path) -> None:
    """A query whose next epoch was removed fails with the oldest epoch."""
    reader = stream_reader(tmp_path)
    start = reader.initialOffset()
    end = reader.latestOffset(start, EVERYTHING)
    journal.compact(CompactionPolicy(newest=0, epochs=2, grace_s=0))
    assert journal.forget(Epoch(3)) == 2
    with pytest.raises(Gone, match="oldest epoch is 2"):
        reader.latestOffset(start, EVERYTHING)
    with pytest.raises(Gone, match="oldest epoch is 2"):
        reader.partitions(start, end)


def test_batch_reader_reads_up_to_the_newest_epoch(journal: DeltaJournal, tmp_path: Path) -> None:
    """`spark.read` has the events from the start on, with the types of Spark at any depth."""
    sale = {"item": "tea", "pieces": 2, "hour": "00:00:01", "waited": ["PT1.5S"]}
    publish(journal, {"sales": [[sale, sale | {"waited": None}]]})
    source = source_of(tmp_path, stream="sales")
    schema = source.schema()
    assert [(one.name, one.dataType.simpleString()) for one in schema] == [
        ("atom", "bigint"),
        ("place", "bigint"),
        ("item", "string"),
        ("pieces", "bigint"),
        ("hour", "bigint"),
        ("waited", "array<interval day to second>"),
        ("epoch", "bigint"),
        ("time", "timestamp"),
    ]
    reader = source.reader(schema)
    [part] = reader.partitions()
    first, second = (row for batch in reader.read(part) for row in batch.to_pylist())
    assert (first["place"], first["hour"], first["waited"]) == (
        0,
        1_000_000,
        [timedelta(seconds=1.5)],
    )
    assert (second["place"], second["waited"]) == (1, None)
    empty = source_of(tmp_path, stream="sales", start="latest").reader(schema)
    assert empty.partitions() == []


def test_options_are_checked(tmp_path: Path) -> None:
    """Each wrong option is an error that names it and the right form."""
    right = {"app": APP, "stream": "words"}
    wrong: list[tuple[dict[str, str], str]] = [
        ({"stream": "words"}, r"option\(\"app\""),
        ({"app": APP}, "either a stream or a class"),
        ({**right, "entity": "Item"}, "either a stream or a class"),
        ({**right, "strat": "earliest"}, "did you mean start"),
        ({**right, "start": "yesterday"}, "atom=N"),
        ({**right, "start": "-1"}, "earliest, latest"),
        ({"app": APP, "entity": "Item", "start": "atom=3"}, "number of an epoch"),
        ({**right, "maxEpochsPerBatch": "0"}, "maxEpochsPerBatch is '0'"),
        ({**right, "wide": "maybe"}, "true or false"),
    ]
    for options, message in wrong:
        with pytest.raises(ConfigError, match=message):
            options_of(options)
    chosen = options_of({**right, "MAXEPOCHSPERBATCH": "3", "Wide": "TRUE", "start": "7"})
    assert (chosen.epochs_max, chosen.wide, chosen.start.epoch) == (3, True, 7)
    with pytest.raises(RequestError, match="did you mean words"):
        SparkSource({**right, "stream": "word"}).schema()
    with pytest.raises(ConfigError, match="no journal of feeds"):
        stream_reader(tmp_path).initialOffset()
