"""`penstock verify` finds damage, names it, and says whether it can be rebuilt."""

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch, LogPartition, Lsn, RequestId
from penstock.cli.main import execute
from penstock.deployment.loading import load_app
from penstock.errors import LogUnavailable
from penstock.files.roots import journal_root
from penstock.files.sealed import seal
from penstock.history import verification
from penstock.history.verification import JournalRows, Remedy, check_tables
from penstock.journal.api import CHANGES, TRANSACTIONS, Commit, CompactionPolicy, PartKind
from penstock.journal.delta import DeltaJournal
from penstock.journal.inventory import EpochUnit
from penstock.log.api import Entry
from penstock.process import presence
from penstock.process.config import Config, ViewConfig
from penstock.process.data_directory import DataDirectory
from penstock.process.presence import boot_id
from penstock.retention import savepoints
from penstock.retention.savepoints import Savepoint
from penstock.snapshots.snapshot import MANIFEST, Snapshots
from penstock.snapshots.snapshot_writer import (
    publish_tables,
    write_next_snapshot,
)
from penstock.sql_view.view import View
from penstock.state.stores import Stores
from tests.checkout import SHOP
from tests.faults.disk import read_only
from tests.history import Call, journal_of
from tests.serial_driver import SerialDriver

pytestmark = pytest.mark.long

CREATED: list[Call] = [
    ("Item", "i1", "create", {"price": 3, "stock": 10}),
    ("User", "u1", "create", {"credit": 20}),
]
ADDED: list[list[Call]] = [
    [("Item", "i1", "add", (number,)), ("User", "u1", "pay", (1,))] for number in range(7)
]
EPOCHS = [CREATED, *ADDED]
LAST = Epoch(7)
DELTA_LOG = "snapshots/Item/_delta_log"
COMMITS = [f"{number:020}.json" for number in range(3)]


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a directory that has everything: segments, epochs, a snapshot, states, a savepoint."""
    data = tmp_path_factory.mktemp("verify") / "data"
    journal_of(SHOP, data, EPOCHS)
    app = load_app(SHOP)
    savepoints.create(data, Savepoint("one", Epoch(3), 0))
    with closing(DeltaJournal(data / "journal", "shop")) as journal:
        snapshots = Snapshots(data / "snapshots", journal.identity)
        for epoch in (2, 4):
            write_next_snapshot(app, journal, snapshots, Epoch(epoch))
        journal.compact(CompactionPolicy(newest=3, epochs=5, grace_s=0))
        journal.checkpoint()
        stores = Stores(data / "state", journal, 2, boot_id=boot_id())
        with stores.at(LAST):
            pass
        stores.close()
        view = View(data, app, journal, ViewConfig())
        view.start()
        assert view.await_epoch(LAST, 20.0)
        view.close()
    return data


@pytest.fixture
def data(complete: Path, tmp_path: Path) -> Path:
    copied = tmp_path / "data"
    shutil.copytree(complete, copied)
    return copied


def verified(
    data: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> tuple[int, dict[str, Any]]:
    code = execute(["verify", SHOP, "--data", str(data), "--json", *more])
    return code, msgspec.json.decode(capsys.readouterr().out)


def flip(path: Path, place: int = -20) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 16
    path.write_bytes(content)


def first(data: Path, pattern: str) -> Path:
    return min(data.glob(pattern))


def damage_log(data: Path) -> None:
    with closing(sqlite3.connect(data / "log.sqlite")) as connection, connection:
        connection.execute(
            "UPDATE block SET data = CAST(substr(data, 1, 20) || x'ff' || substr(data, 22) AS BLOB)"
            " WHERE first = 4"
        )


def replace_log(data: Path) -> None:
    """Replace the log by the log of another application with the same length."""
    for path in data.glob("log.sqlite*"):
        path.unlink()
    with closing(DataDirectory(data).open_log()) as log:
        log.append([Entry(RequestId(f"x{number}"), b"", b"", 0) for number in range(16)])


def shorten_log(data: Path) -> None:
    for path in data.glob("log.sqlite*"):
        path.unlink()
    with closing(DataDirectory(data).open_log()) as log:
        log.append([Entry(RequestId("x"), b"", b"", 0)])


def truncate_log(data: Path) -> None:
    """Remove requests from the log that no epoch has processed."""
    with closing(DataDirectory(data).open_log()) as log:
        log.append([Entry(RequestId("x"), b"", b"", 0)])
        log.truncate(log.end())


def change_state(data: Path) -> None:
    """Put a value into a store that the journal does not have, with the right checksum."""
    with closing(DeltaJournal(data / "journal", "shop")) as journal:
        stores = Stores(data / "state", journal, 2, boot_id=boot_id())
        state = stores._opened(stores._specs[stores.partition_of(EntityKey("Item/i1"))])
        state.clear()
        state.apply(LAST, [(EntityKey("Item/i1"), b"wrong")], BEFORE_FIRST)
        stores.close()


def flip_state(data: Path) -> None:
    """Damage an attribute, wherever it lies; other bytes of a store may be of no meaning."""
    for path in (data / "state").glob("partition-*/data.mdb"):
        if (place := path.read_bytes().find(b"Item/i1")) >= 0:
            flip(path, place + len("Item/i1") + 9)


def late_savepoint(data: Path) -> None:
    savepoints.create(data, Savepoint("late", Epoch(99), 0))


def believe_too_much(data: Path) -> None:
    for name, text in (("commits", "v1\n{}"), ("offsets", 'v1\n{}\n{"0": 99, "run": "x"}')):
        (data / "checkpoint" / name).mkdir(parents=True)
        (data / "checkpoint" / name / "3").write_text(text)


def emptied(log: Path) -> None:
    for path in log.iterdir():
        path.unlink()


def doubled(data: Path) -> None:
    """Let readers see every row twice: the files of the former version are not removed any more."""
    newest = data / DELTA_LOG / "00000000000000000001.json"
    newest.write_bytes(b"".join(newest.read_bytes().splitlines(keepends=True)[:-1]))


def renamed_column(log: Path) -> None:
    path = log / "00000000000000000000.json"
    path.write_bytes(path.read_bytes().replace(b'"price', b'"prize').replace(b"price", b"prize"))


def tear_checkpoint(data: Path) -> None:
    believe_too_much(data)
    (data / "checkpoint" / "offsets" / "3").write_text("v1\n{")


def swap_snapshot(data: Path) -> None:
    """Let the snapshot of epoch 4 be that of epoch 2, with the right checksums."""
    snapshots = Snapshots(data / "snapshots", "")
    older = snapshots.open(Epoch(2))
    own = seal(MANIFEST, msgspec.structs.replace(older, epoch=Epoch(4)))
    snapshots.root.replace(snapshots.path_of(Epoch(4)), own)


def flipped(pattern: str, place: int = -20) -> Callable[[Path], None]:
    return lambda data: flip(first(data, pattern), place)


def removed(pattern: str) -> Callable[[Path], None]:
    return lambda data: first(data, pattern).unlink()


DAMAGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "flipped commit": (
        flipped("journal/_delta_log/*07.json"), "journal/_delta_log/*7.json", "backup"),
    "missing commit": (
        removed("journal/_delta_log/*07.json"), "journal/_delta_log/*7.json", "backup"),
    "missing start": (
        removed("journal/_delta_log/*00.json"), "journal/_delta_log/*0.json", "backup"),
    "flipped part": (
        flipped("journal/kind=changes/000000000007-*"), "*/000000000007-*", "backup"),
    "missing part": (
        removed("journal/kind=transactions/000000000006-*"), "*/000000000006-*", "backup"),
    "flipped segment": (
        flipped("journal/kind=changes/segment-*"), "journal/kind=changes/segment-*", "backup"),
    "flipped index": (
        flipped("journal/_segments/*.index"), "journal/_segments/*.index", "backup"),
    "missing index": (removed("journal/_segments/*.index"), "journal/_delta_log/*1.json", "backup"),
    "damaged log": (damage_log, "log.sqlite", "backup"),
    "missing log": (removed("log.sqlite"), "log.sqlite", "backup"),
    "foreign log": (replace_log, "log.sqlite", "backup"),
    "late log": (truncate_log, "log.sqlite", "backup"),
    "short log": (shorten_log, "log.sqlite", "backup"),
    "flipped savepoint": (flipped("savepoints/one.json", 0), "savepoints/one.json", "backup"),
    "late savepoint": (late_savepoint, "savepoints/late.json", "backup"),
    "flipped state": (flip_state, "state/partition-*", "none"),
    "wrong state": (change_state, "state/partition-*", "rebuild"),
    "flipped snapshot": (
        flipped("snapshots/Item/000000000004-*"), "snapshots/manifests/*4.json", "rebuild"),
    "missing snapshot": (
        removed("snapshots/User/000000000002-*"), "snapshots/manifests/*2.json", "rebuild"),
    "missing Delta commit": (
        removed("snapshots/Item/_delta_log/*1.json"), DELTA_LOG, "rebuild"),
    "doubled rows": (doubled, DELTA_LOG, "rebuild"),
    "wrong snapshot": (swap_snapshot, "snapshots/manifests/*4.json", "rebuild"),
    "flipped manifest": (
        flipped("snapshots/manifests/*4.json"), "snapshots/manifests/*4.json", "rebuild"),
    "flipped checkpoint": (
        flipped("journal/_delta_log/*.checkpoint.parquet", 40), "*/_last_checkpoint", "rebuild"),
    "wrong Spark checkpoint": (believe_too_much, "checkpoint", "none"),
    "flipped view": (flipped("view/view.duckdb", 5_000), "view/view.duckdb", "none"),
    "torn Spark checkpoint": (tear_checkpoint, "checkpoint", "none"),
}  # fmt: skip
DERIVED = {name: one for name, one in DAMAGES.items() if one[2] == "rebuild"}


def test_a_disk_for_reading_only_is_read(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """While the application runs elsewhere, and after its end; nothing is appended."""
    log = DataDirectory(data).open_log()
    log.append([Entry(RequestId("one"), b"body", b"", 0)])
    log_end = log.end()
    with read_only(data, tmp_path / "seen") as seen:
        for is_closed in (False, True):
            if is_closed:
                log.close()
            with closing(DataDirectory(seen).open_log()) as copy:
                assert copy.end() == log_end
                with pytest.raises(LogUnavailable, match="readonly"):
                    copy.append([Entry(RequestId("two"), b"body", b"", 0)])
            assert execute(["status", SHOP, "--data", str(seen)]) == 1, "no driver runs"
            backups = tmp_path / f"backups-{is_closed}"
            assert execute(["backup", str(backups), SHOP, "--data", str(seen)]) == 0
            assert execute(["verify", SHOP, "--data", str(seen)]) == 0
            assert "local state: its disk is mounted for reading only" in capsys.readouterr().out


def test_nothing_is_wrong_with_a_sound_directory(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All that the runtime, maintenance and the view write passes, and nothing is skipped."""
    code, found = verified(data, capsys)
    assert (found["findings"], found["skipped"]) == ([], [])
    assert (code, found["first"], found["epoch"]) == (0, 0, 7)


def assert_named(name: str, found: dict[str, Any]) -> None:
    """Assert that a damage was found, with its file and with a remedy."""
    _, where, remedy = DAMAGES[name]
    assert any(
        one["remedy"] == remedy and Path(one["where"]).match(where) for one in found["findings"]
    ), found


# Of those that can be rebuilt one is enough here: for the exit code they are alike, and the repair of each names it.
@pytest.mark.parametrize(
    "name", [*(one for one in DAMAGES if one not in DERIVED), *list(DERIVED)[:1]]
)
def test_damage_is_named_with_its_remedy(
    name: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each damage is found, with its file and with a remedy; exit code 1 means that the user must act."""
    damage, _, remedy = DAMAGES[name]
    damage(data)
    code, found = verified(data, capsys)
    assert code == (remedy != "none")
    assert_named(name, found)


@pytest.mark.parametrize("name", DERIVED)
def test_what_is_derived_is_repaired(
    name: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each damage of what can be rebuilt is found, too; after the damaged parts were removed, the directory is sound."""
    DERIVED[name][0](data)
    code, found = verified(data, capsys, "--repair")
    assert_named(name, found)
    assert (code, len(found["removed"])) == (0, found["problems"])
    assert verified(data, capsys)[1]["problems"] == 0
    snapshots = Snapshots(data / "snapshots", "")
    newest = snapshots.open(snapshots.epochs()[-1])
    rows = DeltaTable(data / "snapshots" / "Item").to_pyarrow_table()
    assert rows.num_rows == sum(file.rows for file in newest.classes["Item"].files)
    assert set(rows["epoch"].to_pylist()) == {newest.epoch}


@pytest.mark.parametrize(
    "damage",
    [
        shutil.rmtree,
        emptied,
        renamed_column,
        lambda log: (log / COMMITS[0]).unlink(),
        lambda log: (log / COMMITS[1]).write_bytes(b""),
        lambda log: os.truncate(log / COMMITS[1], 300),
        lambda log: (log / COMMITS[0]).write_bytes(b"\x00\xff" * 200),
        lambda log: shutil.copy(log / COMMITS[0], log / COMMITS[2]),
    ],
)
def test_damaged_delta_log_is_found_and_written_again(
    data: Path, damage: Callable[[Path], object]
) -> None:
    """Whatever Delta readers see in place of the newest snapshot, or cannot open."""
    app = load_app(SHOP)
    with closing(DeltaJournal(data / "journal", "shop")) as journal:
        assert list(check_tables(data, app, journal)) == []
        damage(data / DELTA_LOG)
        (finding,) = check_tables(data, app, journal)
        assert (finding.where, finding.remedy) == (DELTA_LOG, Remedy.REBUILD)
        publish_tables(Snapshots(data / "snapshots", journal.identity), "shop", app)
        assert list(check_tables(data, app, journal)) == []


def test_snapshot_whose_writer_has_died_is_no_damage(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Delta readers see a newer epoch, whole; the next snapshot replaces it."""
    (data / "snapshots" / "manifests" / "000000000004.json").unlink()
    assert DeltaTable(data / "snapshots" / "Item").to_pyarrow_table()["epoch"].to_pylist() == [4]
    code, found = verified(data, capsys)
    assert (code, found["findings"]) == (0, [])
    first(data, "snapshots/Item/000000000004-*").unlink()
    assert verified(data, capsys)[0] == 1


def test_truth_is_never_removed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files that only a backup has stay as they are, damaged or not."""
    path = first(data, "journal/kind=changes/000000000007-*")
    flip(path)
    content = path.read_bytes()
    assert verified(data, capsys, "--repair")[0] == 1
    assert path.read_bytes() == content


def test_nothing_is_repaired_below_a_running_application(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a process runs, it is named and nothing is removed."""
    first(data, "snapshots/Item/000000000004-*").unlink()
    with presence.present(data, "driver", "shop"):
        assert execute(["verify", SHOP, "--data", str(data), "--repair"]) == 2
    assert "stop it first" in capsys.readouterr().err
    assert (data / "snapshots" / "manifests" / "000000000004.json").exists()


def test_several_damages_are_all_named(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One finding does not hide another one in the same journal."""
    for epoch in (5, 7):
        flip(first(data, f"journal/kind=changes/{epoch:012}-*"))
    flip(first(data, "view/view.duckdb"), 5_000)
    found = verified(data, capsys)[1]
    assert sorted(one["where"].rpartition("/")[2][:12] for one in found["findings"]) == [
        "000000000005",
        "000000000007",
        "view.duckdb",
    ]
    assert any("local state" in text for text in found["skipped"])


def test_leftovers_are_told_and_are_no_problem(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A part that no commit lists is mentioned; nothing has to be done about it."""
    part = first(data, "journal/kind=changes/000000000007-*")
    shutil.copy(part, part.with_name("000000000007-died-00000000.parquet"))
    code, found = verified(data, capsys)
    assert code == 0
    assert [one["remedy"] for one in found["findings"]] == ["none"]


def wrong(data: Path, rows: list[dict[str, Any]], changes: list[dict[str, Any]], end: int) -> None:
    """Commit an epoch 8 that no driver would."""
    with closing(DeltaJournal(data / "journal", "shop")) as journal:
        parts = (
            journal.write(PartKind.TRANSACTIONS, pa.Table.from_pylist(rows, TRANSACTIONS), "w"),
            journal.write(PartKind.CHANGES, pa.Table.from_pylist(changes, CHANGES), "w"),
        )
        journal.commit(Commit(Epoch(8), {LogPartition(0): Lsn(end)}, parts, 1))


def row(lsn: int) -> dict[str, Any]:
    body = {"request": b"", "reply": b"\xc0", "error": None, "time_us": 0}
    return {"epoch": 8, "partition": 0, "lsn": lsn, "request_id": f"x{lsn}", **body}


def test_epoch_must_have_every_request_that_it_has_passed(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A position without a row is found, and so is a log that ends before it."""
    wrong(data, [row(16), row(18)], [], 19)
    told = " ".join(one["what"] for one in verified(data, capsys)[1]["findings"])
    assert "have passed the positions 16 to 18" in told
    assert "the log ends at 16" in told


def test_request_must_lie_in_the_epoch_that_has_passed_it(data: Path) -> None:
    """A row that belongs to the next epoch is found, also if both lie in one segment."""
    wrong(data, [row(16), row(17)], [], 17)
    with closing(DeltaJournal(data / "journal", "shop")) as journal:
        journal.commit(Commit(Epoch(9), {LogPartition(0): Lsn(18)}, (), 1))
        rows = JournalRows(load_app(SHOP), journal, None, lambda *_: None)
        found = list(
            rows.look([EpochUnit(Epoch(7), Epoch(7), "7"), EpochUnit(Epoch(8), Epoch(9), "8")])
        )
    assert [one.what for one in found if one.is_problem] == [
        "requests lie in other epochs than those that have passed them"
    ]


def test_epoch_changes_no_entity_twice_and_every_request_has_a_reply(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows that no driver writes are found."""
    twice = [{"epoch": 8, "entity": "Item", "key": "i1", "state": b"x"}] * 2
    wrong(data, [row(16) | {"reply": None}], twice, 17)
    told = " ".join(one["what"] for one in verified(data, capsys)[1]["findings"])
    assert "changes an entity twice" in told
    assert "1 requests have no reply" in told
    assert "is older than the one before it" in told


def test_running_application_can_be_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """While epochs are committed and merged, a sound directory stays sound."""
    journal_of(SHOP, tmp_path, EPOCHS)
    driver = SerialDriver(SHOP, Config(tmp_path))
    driver.start()
    body, hint = driver.app.request("Item", "i1", "add", (1,), {})
    stopping = threading.Event()

    def write() -> None:
        number = 0
        while not stopping.is_set():
            driver.log.append([Entry(RequestId(f"w{number}"), body, hint, 0)])
            assert driver.wait_until(Lsn(17 + number), 20_000)
            number += 1
            if number % 5 == 0:
                driver.journal.compact(CompactionPolicy(newest=1, epochs=4, grace_s=0))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(5):
            code, found = verified(tmp_path, capsys)
            problems = [one for one in found["findings"] if one["remedy"] != "none"]
            assert (code, problems) == (0, [])
    finally:
        stopping.set()
        writer.join()
        driver.stop()


def test_files_that_are_merged_during_the_check_are_no_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Delta reader opens the table, and then the files that it has seen are merged and removed."""
    journal_of(SHOP, tmp_path, EPOCHS)
    look = verification._files_seen_by_delta
    looks = [look(journal_root(tmp_path))]
    with closing(DataDirectory(tmp_path).open_journal(load_app(SHOP))) as journal:
        assert journal.compact(CompactionPolicy(newest=1, epochs=4, grace_s=0)).removed
    monkeypatch.setattr(
        verification, "_files_seen_by_delta", lambda root: looks.pop() if looks else look(root)
    )
    code, report = verified(tmp_path, capsys)
    assert not looks
    assert code == 0, report
    assert not [finding for finding in report.get("findings", []) if finding["remedy"] != "none"]


def test_there_is_nothing_to_verify_where_nothing_was_committed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A directory without a journal is refused, and nothing is created in it."""
    assert execute(["verify", SHOP, "--data", str(tmp_path / "none")]) == 2
    assert "there is no history" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
