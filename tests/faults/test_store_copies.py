"""Snapshots, leases, backups and copies of an application whose shared root is in an object store."""

import secrets
import signal
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from deltalake import DeltaTable

from penstock.base.ids import Epoch
from penstock.deployment.loading import load_app
from penstock.errors import ConfigError, Corrupt, OperationalError
from penstock.files import heartbeat, store_root
from penstock.files.layout import UNFINISHED
from penstock.files.roots import root_at, shared_root, snapshots_root
from penstock.files.store_root import StoreRoot
from penstock.history.backup import Backups
from penstock.history.branch import Branch, NewPlace
from penstock.history.restore import fork, restore
from penstock.history.verification import verify
from penstock.journal.delta import DeltaJournal, app_of
from penstock.process.data_directory import DataDirectory
from penstock.process.log_host import host_of_log
from penstock.retention.leases import RetentionLease, active_leases, lease
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.snapshot_writer import (
    remove_snapshots,
    tables_in,
    write_next_snapshot,
)
from penstock.snapshots.state_as_of import all_states_as_of
from tests import forked
from tests.checkout import SHOP
from tests.faults.copies import check_sound, digest_at
from tests.history import journal_of
from tests.object_store import (
    CONFLICT,
    CUT_ANSWER,
    CUT_REQUEST,
    LOST_ANSWER,
    SLOW_DOWN,
    HostileProxy,
    StoreServer,
)
from tests.unit.history.copied_shop import EPOCHS

Stored = Callable[[str], Path]
app = load_app(SHOP)


@pytest.fixture
def shop(stored: Stored) -> Path:
    """A shop in the store, with five epochs."""
    journal_of(SHOP, stored("shop"), EPOCHS)
    return stored("shop")


def take_snapshot(data: Path, epoch: int, then: Callable[[], object] = lambda: None) -> None:
    """Write a snapshot; something may happen after its slices are written."""
    with closing(DataDirectory(data).open_journal(app)) as journal:
        snapshots = Snapshots(snapshots_root(data), journal.identity)

        def reached(step: str) -> None:
            if step == "snapshot-written":
                then()

        write_next_snapshot(app, journal, snapshots, Epoch(epoch), reached)


def snapshots_of(data: Path) -> Snapshots:
    with closing(DataDirectory(data).open_journal_of("shop")) as journal:
        return Snapshots(snapshots_root(data), journal.identity)


def rows_seen(data: Path, name: str) -> list[int]:
    """Return the epochs of the rows that another engine sees in a table."""
    uri, options = snapshots_root(data).folder(name).address()
    epochs: list[int] = (
        DeltaTable(uri, storage_options=options).to_pyarrow_table()["epoch"].to_pylist()
    )
    return epochs


def objects(server: StoreServer, data: Path) -> set[str]:
    """Return the names of all objects of a place."""
    folder = server.folder.parent / str(shared_root(data)).removeprefix("s3://")
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_snapshots_in_a_store_are_read_by_recovery_and_by_other_engines(
    shop: Path, store_server: StoreServer
) -> None:
    """State as of each epoch is the same with snapshots, and with the newest one damaged; Delta readers see the newest."""
    with closing(DataDirectory(shop).open_journal(app)) as journal:
        expected = {epoch: digest_at(shop, epoch) for epoch in range(5)}
        for epoch in (1, 3):
            take_snapshot(shop, epoch)
        assert rows_seen(shop, "Item") == [3]
        snapshots = snapshots_of(shop)
        assert snapshots.epochs() == [1, 3]
        assert {epoch: digest_at(shop, epoch) for epoch in range(5)} == expected
        (file, *_) = snapshots.open(Epoch(3)).files
        folder = store_server.folder.parent / str(snapshots.root).removeprefix("s3://")
        (folder / file.path).write_bytes(b"damaged")
        assert {epoch: digest_at(shop, epoch) for epoch in range(5)} == expected
        assert all_states_as_of(journal, Epoch(4), snapshots).num_rows


def test_of_two_hosts_that_write_one_snapshot_the_first_counts(shop: Path) -> None:
    """The manifest of the first one stays, and Delta readers see its files, although the second has published its own."""
    take_snapshot(shop, 3, lambda: take_snapshot(shop, 3))
    snapshots = snapshots_of(shop)
    manifest = snapshots.open(Epoch(3))
    assert snapshots.whole(manifest)
    for table in tables_in(snapshots, manifest, app):
        assert table.difference(Epoch(3)) is None
    assert len(snapshots.stored()) == 2 * len(
        list(manifest.files)
    )  # those of the second go after a day


def test_files_of_a_removed_snapshot_stay_for_a_day(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow reader of another host reads on; later the files go."""
    for epoch in (1, 3):
        take_snapshot(shop, epoch)
    snapshots = snapshots_of(shop)
    read = snapshots.open(Epoch(1))
    remove_snapshots(snapshots, [Epoch(1)])
    assert snapshots.epochs() == [3]
    assert snapshots.whole(read)
    now_s = StoreRoot.now_s
    monkeypatch.setattr(StoreRoot, "now_s", lambda self: tuple(at + 90_000 for at in now_s(self)))
    remove_snapshots(snapshots, [Epoch(1)])
    assert not snapshots.whole(read)
    assert set(snapshots.stored()) == {file.path for file in snapshots.open(Epoch(3)).files}


def test_lease_of_another_host_counts_until_it_has_not_changed_for_a_minute(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leases of a process are one name; the clock of the host that removes epochs alone says when it is dead."""
    with lease(shop, "a backup", Epoch(2)), lease(shop, "a query", Epoch(1)):
        with lease(shop, "a check", Epoch(3)):
            found = active_leases(shop)
        assert [one.epoch for one in found] == [1, 2]
        assert "a query (process" in found[0].who
        assert len(list(shared_root(shop).names("leases"))) == 1
    assert active_leases(shop) == []
    shared_root(shop).add("leases/dead.json", b'{"about":[["of a dead host",4]],"count":3}')
    assert active_leases(shop) == [RetentionLease("of a dead host", Epoch(4))]
    shared_root(shop).replace("leases/dead.json", b'{"about":[["of a dead host",4]],"count":4}')
    start_s = time.monotonic()
    for passed_s, held in ((1_000, 1), (1_050, 1), (1_070, 0)):
        monkeypatch.setattr(time, "monotonic", lambda passed_s=passed_s: start_s + passed_s)
        assert len(active_leases(shop)) == held
    assert list(shared_root(shop).names("leases")) == []


@pytest.mark.parametrize("way", ["folder to store", "store to folder", "store to store"])
@pytest.mark.turns(1, "history", "files", "journal", "log", "snapshots")
def test_backups_go_from_anywhere_to_anywhere(
    way: str, stored: Stored, store_server: StoreServer, tmp_path: Path
) -> None:
    """A backup, its restored application and a fork have the state and the replies of the original, and are sound."""
    source, _, target = way.split()
    data = stored("shop") if source == "store" else tmp_path / "shop"
    journal_of(SHOP, data, EPOCHS)
    take_snapshot(data, 2)
    place = store_server.url(f"{tmp_path.name}/backups") if target == "store" else "backups"
    backups = Backups(
        root_at(str(tmp_path / place) if target == "folder" else place, tmp_path / "moving")
    )
    made = backups.make(data, "shop")
    assert len(backups.make(data, "shop").copied) <= 1  # the log, if it has changed
    assert len(backups.keep(1)) == 1
    assert made.backup.files
    makes: list[Callable[[NewPlace], Branch]] = [
        lambda place: restore(backups.root, place, 3),
        lambda place: fork(data, "shop", place, 3),
    ]
    for number, make in enumerate(makes):
        for store in ("", store_server.url(f"{tmp_path.name}/new{number}")):
            new = tmp_path / f"new{number}{len(store)}"
            branch = make(NewPlace(new, store))
            assert (branch.epoch, branch.data) == (3, store or str(new))
            assert digest_at(new, 3) == digest_at(data, 3)
            assert not store or getattr(host_of_log(new), "is_settled", False)
            check_sound(new)
            with pytest.raises(ConfigError, match="is not empty"):
                make(NewPlace(tmp_path / "other" if store else new, store))
    assert verify(data, app, lambda *_: None).problems == []


PROGRAM = """
import sys
from pathlib import Path
from penstock.errors import PenstockError
from penstock.files import heartbeat
from penstock.files.roots import root_at
from penstock.history.backup import Backups
from penstock.history.branch import NewPlace
from penstock.history.restore import fork, restore
from penstock.process.fault import Fault
what, data, backups, target, store, fault = sys.argv[1:]
heartbeat.DEAD_S = 0.5
reached, place = Fault(fault).reached, root_at(backups, Path(target).with_name("moving"))
try:
    if what == "backup":
        Backups(place).make(Path(data), "shop", reached)
        Backups(place).keep(1, reached)
    elif what == "restore":
        restore(place, NewPlace(Path(target), store), 3, reached)
    else:
        fork(Path(data), "shop", NewPlace(Path(target), store), 3, reached)
except PenstockError as error:
    sys.exit(f"{error.code}: {error}")
"""


@pytest.mark.parametrize(
    "fault",
    [
        "backup-file-copied@2",
        "backup-log-copied",
        "backup-before-manifest",
        "backup-after-manifest",
    ],
)
@pytest.mark.turns(
    4, "history", "files", "journal", "log", "process", of="a copy killed at every step"
)
def test_killed_backup_to_a_store_is_continued(
    fault: str, shop: Path, store_server: StoreServer, tmp_path: Path
) -> None:
    """The earlier backup can be restored after a kill at any step, and the next run completes."""
    place = store_server.url(f"{tmp_path.name}/backups")
    backups = Backups(root_at(place, tmp_path / "moving"))
    backups.make(shop, "shop")
    take_snapshot(shop, 4)
    words = ["backup", shop, place, tmp_path / "new", ""]
    assert forked.run(PROGRAM, *words, fault).returncode == -signal.SIGKILL
    assert restore(backups.root, tmp_path / "first", 4).epoch == 4
    assert forked.run(PROGRAM, *words, "").returncode == 0
    assert len(backups.every()) == 1
    restore(backups.root, tmp_path / "second", None)
    assert digest_at(tmp_path / "second", 4) == digest_at(shop, 4)


@pytest.mark.parametrize(
    "fault", ["restore-file-copied@4", "store-copied", "fork-before-rename", "store-renamed", "fork-after-rename"]
)  # fmt: skip
@pytest.mark.turns(
    4, "history", "files", "journal", "log", "process", of="a copy killed at every step"
)
def test_killed_copy_to_a_store_is_whole_or_no_application(
    fault: str, shop: Path, store_server: StoreServer, tmp_path: Path
) -> None:
    """After a kill no process finds or begins an application there, and the next copy to the place removes what is left."""
    backups, store = (store_server.url(f"{tmp_path.name}/{name}") for name in ("backups", "new"))
    Backups(root_at(backups, tmp_path / "moving")).make(shop, "shop")
    what = "fork" if fault.startswith("fork") else "restore"
    words = [what, shop, backups, tmp_path / "new", store]
    assert forked.run(PROGRAM, *words, fault).returncode == -signal.SIGKILL
    root = root_at(store, tmp_path / "moving")
    if not fault.endswith("after-rename"):
        assert app_of(root.folder("journal")) is None
        if list(root.names("journal")):
            with pytest.raises(Corrupt, match="missing or damaged"):
                DeltaJournal(root.folder("journal"), "shop")
        done = forked.run(PROGRAM, *words, "")
        assert done.returncode == 0, done.stderr
    assert not root.has(UNFINISHED) or fault.endswith("after-rename")
    assert digest_at(tmp_path / "new", 3) == digest_at(shop, 3)
    check_sound(tmp_path / "new")
    assert "is not empty" in forked.run(PROGRAM, *words, "").stderr


def test_place_in_which_another_host_copies_is_refused(
    shop: Path, store_server: StoreServer, tmp_path: Path
) -> None:
    """While the name of the other changes, its copy goes on, and a second one is refused."""
    store = store_server.url(f"{tmp_path.name}/new")
    root = root_at(store, tmp_path / "moving")
    with heartbeat.beating(root, UNFINISHED, "another host"), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(fork, shop, "shop", NewPlace(tmp_path / "new", store), None)
        while not waiting.done():
            root.replace(UNFINISHED, secrets.token_bytes(8))
            time.sleep(0.2)
        with pytest.raises(ConfigError, match="another process copies"):
            waiting.result()
    assert list(root.names()) == []


def test_copies_survive_a_network_whose_answers_lie(
    shop: Path, store_server: StoreServer, proxy: HostileProxy, tmp_path: Path
) -> None:
    """Lost, cut, refused and false answers cost time, and no byte of a backup or of its restored application."""
    hostile = StoreRoot(
        store_server.url(f"{tmp_path.name}/b"), tmp_path / "far", store_server.access(proxy.port)
    )
    for number, faults in enumerate((
        [LOST_ANSWER, CUT_ANSWER, SLOW_DOWN, CUT_REQUEST],
        [CUT_ANSWER, CONFLICT],
    )):  # fmt: skip
        proxy.faults["PUT"] = deque(faults)
        Backups(hostile).make(shop, "shop")
        proxy.faults["GET"] = deque([SLOW_DOWN, CUT_ANSWER, LOST_ANSWER])
        restore(hostile, tmp_path / f"new{number}", None)
        assert digest_at(tmp_path / f"new{number}", 4) == digest_at(shop, 4)


def test_store_that_is_out_of_reach_is_named(
    shop: Path, store_server: StoreServer, proxy: HostileProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """The error says which place fails, and a store that does not answer has not lost its backups."""
    monkeypatch.setattr(store_root, "_PATIENCE_S", 0.1)
    url = store_server.url(f"{tmp_path.name}/b")
    hostile = StoreRoot(url, tmp_path / "far", store_server.access(proxy.port))
    Backups(hostile).make(shop, "shop")
    proxy.always["GET"] = SLOW_DOWN
    with pytest.raises(OperationalError, match=f"{url}.*SlowDown"):
        restore(hostile, tmp_path / "new", None)
    assert not (tmp_path / "new").exists()
