"""The files of parts."""

import secrets
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import Raw

from penstock.base.ids import ONLY_PARTITION, Epoch, Lsn
from penstock.base.subject_keys import MemoryKeys, new_tree
from penstock.errors import Corrupt
from penstock.files.local_root import LocalRoot
from penstock.journal import parquet
from penstock.journal.action import CommitText, commit_of, commit_text, parse
from penstock.journal.api import CHANGES, TRANSACTIONS, Commit, PartKind
from penstock.journal.delta import SMALL_PART_BYTES, DeltaJournal, SmallParts
from penstock.journal.parquet import joined
from penstock.model.request import Request, encode_request
from penstock.model.sealed_value import ARGUMENTS, seal_value


@pytest.mark.parametrize(("size", "compression"), [(60_000, "UNCOMPRESSED"), (140_000, "ZSTD")])
def test_part_that_compaction_merges_is_not_compressed(size: int, compression: str) -> None:
    """The rows that are read are those that were written, compressed or not."""
    row = {"epoch": 7, "entity": "Item", "key": "i1", "state": b"s" * size}
    rows = pa.Table.from_pylist([row, {**row, "key": "i2", "state": None}], CHANGES)
    part, data = parquet.encode(PartKind.CHANGES, rows, "0-0")
    columns = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    used = {columns.column(index).compression for index in range(columns.num_columns)}
    assert used == {compression}
    assert parquet.decode(part, bytes(data), None) == rows


def test_reader_of_history_opens_a_small_part_once(tmp_path: Path) -> None:
    """A small part is kept with all its columns, and a large one is not; each byte is checked at the first read."""
    journal = DeltaJournal(tmp_path, "shop")
    rows = pa.table([[0], ["Item"], ["i1"], [b"state"]], schema=CHANGES)
    large = pa.table([[0], ["Item"], ["i2"], [secrets.token_bytes(SMALL_PART_BYTES)]], CHANGES)
    part, large_part = (journal.write(PartKind.CHANGES, each, "task0") for each in (rows, large))
    reader = DeltaJournal(tmp_path, "shop")
    reader.small_parts = SmallParts()
    assert reader.read(part, ["key"]).equals(rows.select(["key"]))
    assert reader.read(large_part, ["key"]).equals(large.select(["key"]))
    for each in (part, large_part):
        (tmp_path / each.path).unlink()
    assert reader.read(part).equals(rows)
    assert reader.read(part, ["state", "key"]).equals(rows.select(["state", "key"]))
    with pytest.raises(Corrupt):
        reader.read(large_part)


def test_small_tables_are_joined() -> None:
    """The rows keep their order, and each table but the last has enough of them."""
    tables = [pa.table({"n": list(range(at, at + 3))}) for at in range(0, 30, 3)]
    assert [each["n"].to_pylist() for each in joined(tables, 8)] == [
        list(range(9)),
        list(range(9, 18)),
        list(range(18, 27)),
        list(range(27, 30)),
    ]
    assert list(joined([], 8)) == []


def test_a_commit_of_an_earlier_version_names_no_deployment() -> None:
    """Without a deployment, the text is that of earlier versions; with one or without, this version reads it."""
    commit = Commit(Epoch(3), {ONLY_PARTITION: Lsn(5)}, (), 7)
    former = commit_text(commit, "shop")
    named = commit_text(replace(commit, deployment="1:a"), "shop")
    assert b"deployment" not in former
    read = [parse(text) for text in (former, named)]
    assert all(isinstance(text, CommitText) for text in read)
    assert [commit_of(text) for text in read if isinstance(text, CommitText)] == [
        commit,
        replace(commit, deployment="1:a"),
    ]


def test_a_store_is_asked_for_keys_only_where_a_request_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests without personal data wait for no answer about the keys; those with them are sealed, and read as before."""
    monkeypatch.setattr(LocalRoot, "is_far", True)
    keys, asked = MemoryKeys(new_tree(b"secret")), list[str]()
    journal = DeltaJournal(tmp_path, "shop")

    def asking(why: str) -> MemoryKeys:
        asked.append(why)
        return keys

    def read(what: str, arguments: bytes, count: int = 1) -> list[bytes]:
        body = encode_request(Request("User", "ada", "greet", Raw(arguments), Raw(b"\x80")))
        row = [0, 0, 0, "r", 0, body, None, b"\xa2hi"]
        rows = pa.table([[value] * count for value in row], TRANSACTIONS)
        journal.keys = partial(asking, f"written {what}")
        part = journal.write(PartKind.TRANSACTIONS, rows, what)
        journal.keys = partial(asking, f"read {what}")
        replies: list[bytes] = journal.read(part, ["reply"])["reply"].to_pylist()
        (stored,) = set(journal.stored(part, ["reply"])["reply"].to_pylist())
        assert (stored == b"\xa2hi") == (what != "sealed")
        return replies

    assert read("plain", b"\x90") == [b"\xa2hi"]
    assert asked == []
    assert read("sealed", seal_value(keys, "User/ada", b"\x90", ARGUMENTS)) == [b"\xa2hi"]
    assert asked == ["written sealed", "read sealed"]
    assert read("many", b"\x90", 1_000) == [b"\xa2hi"] * 1_000
    assert asked[2:] == ["written many"], "to decode many requests takes longer than the answer"
