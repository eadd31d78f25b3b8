"""The relay: each record once and in order, while it is written, after it, and when the writer dies."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.base.ids import LogPartition, Lsn, RequestId
from penstock.engine.execute import Outcome
from penstock.engine.streams.cascade import PublishedAtom, cascade_of
from penstock.errors import UserError
from penstock.log.api import Record
from penstock.model.request import Failure, encode_failure
from penstock.runtime.spark.step_relay import (
    RECORDS,
    Mark,
    ProcessedRecord,
    RelayLost,
    RelayReader,
    RelayWriter,
)

FAILURE = Failure(UserError.code, "ValueError", "no")


def add(writer: RelayWriter, number: int) -> None:
    """Write a record with two atoms; each third one has failed."""
    record = Record(Lsn(number), RequestId(f"r{number}"), b"body", 1_000 + number)
    cascade = cascade_of(record.request_id, record.body, record.time_us)
    cascade.published = [
        PublishedAtom("ones", 0, (b"a", b"b")),
        PublishedAtom("others", 0, (b"%d" % number,)),
    ]
    error = FAILURE.code if number % 3 == 0 else None
    reply = encode_failure(FAILURE) if error else b"reply"
    writer.add(number, LogPartition(1), record, Outcome(error, reply, (), {}), cascade)
    assert cascade.published == [], "the reader publishes them"


def check(taken: Sequence[ProcessedRecord], count: int) -> None:
    """Compare records with those that `add` has written."""
    assert [work.position for work in taken] == list(range(count))
    for number, work in enumerate(taken):
        assert work.record == Record(Lsn(number), RequestId(f"r{number}"), b"body", 1_000 + number)
        assert work.partition == 1
        assert work.failure == (FAILURE if number % 3 == 0 else None)
        assert work.reply == (encode_failure(FAILURE) if number % 3 == 0 else b"reply")
        assert [(atom.stream, atom.step, atom.events) for atom in work.cascade.published] == [
            ("ones", 0, (b"a", b"b")),
            ("others", 0, (b"%d" % number,)),
        ]


@pytest.mark.parametrize("count", [0, 1, RECORDS, 2 * RECORDS + 1])
def test_a_reader_takes_what_was_written_before(tmp_path: Path, count: int) -> None:
    """The file of an attempt that has ended needs no mark; a reader takes it by the name of the relay, or by its own."""
    relay = str(tmp_path / "relay")
    with RelayWriter(relay) as writer:
        for number in range(count):
            add(writer, number)
    for name in (relay, str(writer.path)):
        reader = RelayReader(name)
        check(list(reader.records()), count)
        assert reader.path == writer.path


def test_a_reader_waits_for_the_writer(tmp_path: Path) -> None:
    """A reader that starts first takes all records, each batch while the writer still writes."""
    relay, count = str(tmp_path / "relay"), 5 * RECORDS
    with ThreadPoolExecutor(1) as thread, Mark(relay):
        reading = thread.submit(lambda: list(RelayReader(relay).records()))
        with RelayWriter(relay) as writer:
            for number in range(count):
                add(writer, number)
        check(reading.result(60), count)


def test_a_frame_is_readable_before_the_end(tmp_path: Path) -> None:
    """The reader need not wait until the writer has ended."""
    relay = str(tmp_path / "relay")
    with Mark(relay), RelayWriter(relay) as writer:
        for number in range(RECORDS):
            add(writer, number)
        records = RelayReader(relay).records()
        check([next(records) for _ in range(RECORDS)], RECORDS)


def fails(relay: str) -> RelayWriter:
    """Return a writer that has failed behind its first frame."""
    with suppress(KeyError), RelayWriter(relay) as writer:
        for number in range(RECORDS + 1):
            add(writer, number)
        raise KeyError
    return writer


def test_a_relay_without_end_is_lost(tmp_path: Path) -> None:
    """A writer that has failed leaves no end; without the mark, the reader gives up, also inside of a frame."""
    relay = str(tmp_path / "relay")
    with pytest.raises(RelayLost):
        list(RelayReader(relay).records())
    with Mark(relay):
        writer = fails(relay)
    with pytest.raises(RelayLost):
        list(RelayReader(relay).records())
    whole = writer.path.read_bytes()
    for length in (0, 3, 4, len(whole) - 1):
        writer.path.write_bytes(whole[:length])
        with pytest.raises(RelayLost):
            list(RelayReader(relay).records())


def test_each_attempt_has_a_file_of_its_own(tmp_path: Path) -> None:
    """A later attempt leaves the file of the earlier one as it is; a reader that begins now takes the later one."""
    relay = str(tmp_path / "relay")
    with RelayWriter(relay) as first:
        add(first, 0)
    with RelayWriter(relay) as second:
        for number in range(2):
            add(second, number)
    assert first.path != second.path
    reader = RelayReader(relay)
    check(list(reader.records()), 2)
    assert reader.path == second.path
    check(list(RelayReader(str(first.path)).records()), 1)
