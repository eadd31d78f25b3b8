"""A Delta journal with damaged files, and with an fsync that fails (F4 to F6)."""

import logging
import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn
from penstock.errors import Corrupt, JournalUnavailable
from penstock.files import durable
from penstock.files.local_root import LocalRoot
from penstock.journal.api import CHANGES, Commit, Part, PartKind
from penstock.journal.delta import DeltaJournal


def grow(path: Path, count: int) -> list[Commit]:
    journal = DeltaJournal(path, "shop")
    made = []
    for epoch in range(count):
        row = {"epoch": epoch, "entity": "Item", "key": "i1", "state": b"s"}
        rows = pa.Table.from_pylist([row] * 3, CHANGES)
        part = journal.write(PartKind.CHANGES, rows, "0-0")
        made.append(Commit(Epoch(epoch), {LogPartition(0): Lsn(epoch)}, (part,), epoch))
        journal.commit(made[-1])
    return made


def file_of(path: Path, epoch: int) -> Path:
    return path / "_delta_log" / f"{epoch + 1:020}.json"


def history(path: Path) -> list[Commit]:
    return list(DeltaJournal(path, "shop").commits(BEFORE_FIRST))


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << offset % 8
    path.write_bytes(data)


def test_commit_is_durable_before_it_is_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes and the parts are on the disk before the name appears, and the name before commit returns."""
    journal = DeltaJournal(tmp_path, "shop")
    assert journal.last() is None
    row = {"epoch": 0, "entity": "Item", "key": "i1", "state": b"s"}
    part = journal.write(PartKind.CHANGES, pa.Table.from_pylist([row], CHANGES), "0-0")
    calls: list[str] = []
    fsync, link = os.fsync, os.link

    def watched_fsync(descriptor: int) -> None:
        synced = Path(f"/proc/self/fd/{descriptor}").readlink()
        calls.append(f"fsync {synced.suffix or synced.name}")
        fsync(descriptor)

    def watched_link(source: Path, target: Path) -> None:
        calls.append("link " + target.name)
        link(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "link", watched_link)
    journal.commit(Commit(Epoch(0), {}, (part,), 0))
    assert sorted(calls[:3]) == ["fsync .parquet", "fsync .tmp", "fsync kind=changes"]
    assert calls[3:] == [f"link {1:020}.json", "fsync _delta_log"]


def test_part_for_the_commit_of_another_host_is_durable_when_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a shared file system, no host can sync what another one has written."""
    journal = DeltaJournal(tmp_path, "shop")
    journal.is_for_other_hosts = True
    synced: list[str] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    row = {"epoch": 0, "entity": "Item", "key": "i1", "state": b"s"}
    part = journal.write(PartKind.CHANGES, pa.Table.from_pylist([row], CHANGES), "0-0")
    assert sorted(synced) == sorted([Path(part.path).name, "kind=changes"])


def test_reader_makes_a_name_durable_before_reporting_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that another process made visible is not reported before its name is on disk."""
    reader = DeltaJournal(tmp_path, "shop")
    assert reader.last() is None
    made = grow(tmp_path, 1)
    synced: list[Path] = []
    monkeypatch.setattr(durable, "sync_directory", synced.append)
    assert reader.wait(BEFORE_FIRST, 0) == made[0]
    assert synced == [tmp_path / "_delta_log"]


def test_commit_of_unknown_outcome_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When only the last fsync fails, the error says so, and the same commit then succeeds."""
    journal = DeltaJournal(tmp_path, "shop")
    assert journal.last() is None
    commit = Commit(Epoch(0), {}, (), 0)

    def failing(path: Path) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(durable, "sync_directory", failing)
        with pytest.raises(JournalUnavailable, match="epoch 0, whose outcome is unknown: Input"):
            journal.commit(commit)
        with pytest.raises(JournalUnavailable, match="Input"):
            journal.commit(commit)
    journal.commit(commit)
    assert history(tmp_path) == [commit]


def test_torn_newest_commit_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A newest commit cut at any byte is renamed, said in a warning, and can be made again."""
    made = grow(tmp_path, 3)
    newest = file_of(tmp_path, 2)
    whole = newest.read_bytes()
    for length in {*range(0, len(whole) - 1, 23), whole.index(b"\n") + 1, len(whole) - 2}:
        newest.write_bytes(whole[:length])
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert history(tmp_path) == made[:2]
        assert [one.message for one in caplog.records] == [
            "a torn commit of the journal is set aside; its epoch runs again"
        ]
        assert not newest.exists()
    DeltaJournal(tmp_path, "shop").commit(made[2])
    assert history(tmp_path) == made
    assert DeltaTable(tmp_path).version() == 3


def test_commit_without_its_last_newline_is_whole(tmp_path: Path) -> None:
    """A file that lost only the end of its last line is not set aside."""
    made = grow(tmp_path, 2)
    newest = file_of(tmp_path, 1)
    newest.write_bytes(newest.read_bytes()[:-1])
    assert history(tmp_path) == made


def test_zeros_at_the_end_are_a_torn_commit(tmp_path: Path) -> None:
    """Blocks that a power loss left empty count as missing."""
    made = grow(tmp_path, 2)
    newest = file_of(tmp_path, 1)
    whole = newest.read_bytes()
    newest.write_bytes(whole[:200] + bytes(len(whole) - 200))
    assert history(tmp_path) == made[:1]


def test_torn_commit_that_was_acknowledged_is_corrupt(tmp_path: Path) -> None:
    """A newest commit that a checkpoint has seen whole is not taken for an unfinished one."""
    grow(tmp_path, 2)
    DeltaJournal(tmp_path, "shop").checkpoint()
    newest = file_of(tmp_path, 1)
    newest.write_bytes(newest.read_bytes()[:100])
    with pytest.raises(Corrupt, match="epoch 1 is incomplete"):
        history(tmp_path)
    newest.unlink()
    with pytest.raises(Corrupt, match="epoch 1 is missing"):
        history(tmp_path)


@pytest.mark.parametrize(
    ("epoch", "what"), [(1, "00000000000000000002.json of epoch 1"), (-1, "the journal's start")]
)
@pytest.mark.parametrize("damage", ["missing", "torn", "flipped"])
def test_damaged_commit_within_history_is_corrupt(
    tmp_path: Path, epoch: int, what: str, damage: str
) -> None:
    """A commit that others follow is never skipped; the error names file, epoch and remedy."""
    grow(tmp_path, 4)
    file = file_of(tmp_path, epoch)
    match damage:
        case "missing":
            file.unlink()
        case "torn":
            file.write_bytes(file.read_bytes()[:300])
        case _:
            flip(file, file.stat().st_size - 10)
    with pytest.raises(Corrupt, match=f"{what}.*backup"):
        history(tmp_path)


def test_commit_in_the_place_of_another_is_corrupt(tmp_path: Path) -> None:
    """A whole commit under another epoch's name is found."""
    grow(tmp_path, 3)
    file_of(tmp_path, 1).write_bytes(file_of(tmp_path, 0).read_bytes())
    with pytest.raises(Corrupt, match="epoch 1 holds epoch 0"):
        history(tmp_path)


def test_commit_of_another_engine_is_corrupt(tmp_path: Path) -> None:
    """A version that another program wrote into the table is not taken for an epoch."""
    grow(tmp_path, 1)
    DeltaTable(tmp_path).alter.set_table_properties({"delta.checkpointInterval": "7"})
    with pytest.raises(Corrupt, match="epoch 1 is damaged, or was not written by Penstock"):
        history(tmp_path)


def test_no_bit_flip_changes_a_commit(tmp_path: Path) -> None:
    """Any flipped bit of a commit is found, or has no effect."""
    made = grow(tmp_path, 2)
    file = file_of(tmp_path, 0)
    whole = file.read_bytes()
    found = 0
    for offset in range(len(whole)):
        flip(file, offset)
        try:
            assert history(tmp_path) == made
        except Corrupt:
            found += 1
        file.write_bytes(whole)
    assert found > len(whole) * 3 // 4


def test_torn_creation_is_repeated(tmp_path: Path) -> None:
    """A journal whose creation was cut short, and which has no epoch, is created again."""
    DeltaJournal(tmp_path, "shop")
    start_file = file_of(tmp_path, -1)
    start_file.write_bytes(start_file.read_bytes()[:50])
    assert len(grow(tmp_path, 2)) == 2
    assert len(history(tmp_path)) == 2


def test_every_damaged_byte_of_a_part_is_found(tmp_path: Path) -> None:
    """A part with a flipped bit, or cut short, is an error that names file and epoch."""
    made = grow(tmp_path, 1)
    part = made[0].parts[0]
    journal = DeltaJournal(tmp_path, "shop")
    file = tmp_path / part.path
    whole = file.read_bytes()
    for offset in range(0, len(whole), 5):
        flip(file, offset)
        with pytest.raises(Corrupt, match=f"{part.path} of epoch 0 does not have the checksum"):
            journal.read(part)
        file.write_bytes(whole[:offset])
        with pytest.raises(Corrupt, match=f"has {offset} bytes instead of {len(whole)}.*backup"):
            journal.read(part)
        file.write_bytes(whole)
    assert journal.read(part).num_rows == 3


def test_commit_of_a_part_that_shrank_is_refused(tmp_path: Path) -> None:
    """A part that is not as long as it was written is not committed."""
    journal = DeltaJournal(tmp_path, "shop")
    rows = pa.Table.from_pylist([{"epoch": 0, "entity": "A", "key": "b", "state": b""}], CHANGES)
    part: Part = journal.write(PartKind.CHANGES, rows, "0-0")
    os.truncate(tmp_path / part.path, part.size - 1)
    with pytest.raises(Corrupt, match="nothing is committed"):
        journal.commit(Commit(Epoch(0), {}, (part,), 0))
    assert journal.last() is None


@pytest.mark.parametrize("damage", ["flipped", "torn", "hint", "missing"])
def test_damaged_checkpoint_is_built_again(tmp_path: Path, damage: str) -> None:
    """A checkpoint is derived: when it or its hint is damaged, the commits give a new one."""
    grow(tmp_path, 3)
    journal = DeltaJournal(tmp_path, "shop")
    journal.checkpoint()
    log = tmp_path / "_delta_log"
    file = log / f"{3:020}.checkpoint.parquet"
    match damage:
        case "flipped":
            flip(file, 100)
        case "torn":
            os.truncate(file, 100)
        case "missing":
            file.unlink()
        case _:
            (log / "_last_checkpoint").write_text("{")
    journal.checkpoint()
    for epoch in range(-1, 3):
        file_of(tmp_path, epoch).unlink()
    table = DeltaTable(tmp_path)
    assert (table.version(), table.to_pyarrow_table().num_rows) == (3, 9)


def test_unfinished_files_are_ignored(tmp_path: Path) -> None:
    """Drafts that a crash left behind disturb no reader; a checkpoint removes drafts of its own."""
    made = grow(tmp_path, 2)
    log = tmp_path / "_delta_log"
    later = log / f".{3:020}.json.0badcafe.tmp"
    later.write_bytes(b"{")
    assert DeltaTable(tmp_path).version() == 2
    assert history(tmp_path) == made
    (log / "._last_checkpoint.0badcafe.tmp").write_bytes(b"{")
    (log / f".{1:020}.checkpoint.parquet.0badcafe.tmp").write_bytes(b"PAR1")
    assert DeltaTable(tmp_path).version() == 2
    journal = DeltaJournal(tmp_path, "shop")
    journal.checkpoint()
    assert list(log.glob(".*")) == [later]


def test_unreadable_directory_is_unavailable(tmp_path: Path) -> None:
    """A journal that cannot be created says where and why."""
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalUnavailable, match=r"cannot open the journal in .*file"):
        DeltaJournal(tmp_path / "file" / "journal", "shop")


def test_name_that_appears_during_the_listing_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing that lacks a name which is there does not make the journal corrupt."""
    made = grow(tmp_path, 3)
    names = [f"{version:020}.json" for version in (0, 2, 3)]
    monkeypatch.setattr(LocalRoot, "names", lambda root, folder="": iter(names))
    assert history(tmp_path) == made
