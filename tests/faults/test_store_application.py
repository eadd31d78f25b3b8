"""An application whose history is in an object store: commands on each host, and a log that is on one of them."""

import json
import re
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.base.ids import ONLY_PARTITION, Epoch, Lsn, RequestId
from penstock.cli.main import execute
from penstock.errors import ConfigError, Corrupt, Erased, Fenced, RequestConflict
from penstock.files import key_file, store_root
from penstock.files.key_file import KeyFile
from penstock.files.layout import (
    ARCHIVES,
    JOURNAL,
    KEYS,
    LOG,
    PAUSES,
    SAVEPOINTS,
    SHARED_ROOT,
    SUBJECT_KEYS,
)
from penstock.files.roots import shared_root, use_store
from penstock.history.backup_set import collect
from penstock.history.moved_log import begin_log, end_log
from penstock.journal.api import Commit
from penstock.log.api import Entry
from penstock.log.copy_prefix import PositionRange
from penstock.process import view_files
from penstock.process.config import Config, Setting, load_config
from penstock.process.data_directory import DataDirectory
from penstock.process.erasures import Certificate, Erasures
from tests.gateway_thread import HOST
from tests.history import journal_of
from tests.object_store import BUCKET, StoreServer
from tests.unit.process.key_services import SERVICE

SHOP = "examples/shop"

HostOf = Callable[[str], Config]


@pytest.fixture
def host_of(store_server: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostOf:
    """Return the settings of a host with a name; its folder is empty at first."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{HOST}:{store_server.port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", store_server.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", store_server.secret)

    def host(name: str) -> Config:
        place = f"s3://{BUCKET}/{tmp_path.name}"
        flags = [Setting("data", place, "--data"), Setting("host_data", str(tmp_path / name), "")]
        config = load_config(data=tmp_path, flags=flags)
        use_store(config.data, config.store)
        return config

    return host


def grow(config: Config, *ids: str) -> None:
    """Process one request in an epoch for each id of an item."""
    calls = [[("Item", each, "create", {"price": 5, "stock": 100})] for each in ids]
    journal_of(SHOP, config.data, calls, deploys=True)


def append(config: Config, request_id: str, body: bytes = b"body") -> Lsn:
    """Append a request as a gateway does."""
    with closing(DataDirectory(config.data).open_log(config)) as log:
        return log.append([Entry(RequestId(request_id), body, b"", time.time_ns() // 1_000)])[0]


def test_commands_read_and_write_the_store_from_every_host(
    host_of: HostOf, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """State, history and small files come from the store on a host whose folder was empty, and none is in the folder."""
    first, second = host_of("first"), host_of("second")
    begin_log(first, abandons=False)
    grow(first, "i1", "i2")
    monkeypatch.setenv("PENSTOCK_DATA", first.store)

    def run(config: Config, *words: str) -> str:
        monkeypatch.setenv("PENSTOCK_HOST_DATA", str(config.data))
        code = execute([*words])
        output, errors = capsys.readouterr()
        assert code == 0, (words, output, errors)
        return output

    rows = json.loads(run(second, "sql", "SELECT item_id FROM Item ORDER BY 1", SHOP, "--json"))
    assert "i2" in str(rows)
    past = run(second, "sql", "SELECT item_id FROM Item AS OF EPOCH 0", SHOP, "--json")
    assert "i2" not in past
    assert "create" in run(second, "history", "Item", "i2", SHOP)
    run(second, "flow", "pause", SHOP, "Item", "--reason", "prices")
    assert "prices" in run(first, "flow", "show", SHOP)
    run(second, "flow", "resume", SHOP, "Item")
    run(first, "keys", "add", "web", "--scope", "call", "--app", SHOP)
    assert "web" in run(second, "keys", "list")
    run(second, "savepoint", "one", SHOP)
    assert "one" in run(first, "savepoint", "--list", SHOP)
    run(first, "savepoint", "--remove", "one", SHOP)
    assert "deployment" in run(second, "apps")
    run(second, "explain", SHOP)
    for config in (first, second):
        names = {path.name for path in config.data.iterdir()}
        assert SHARED_ROOT in names
        assert not names & {KEYS, PAUSES, SAVEPOINTS, ARCHIVES}
        assert not any((config.data / JOURNAL).rglob("*.json"))


def test_log_moves_only_when_nothing_can_be_lost(host_of: HostOf) -> None:
    """Another host takes no request while the log may have some; after a clean stop it goes on with all ids."""
    first, second = host_of("first"), host_of("second")
    begin_log(first, abandons=False)
    grow(first, "i1")
    append(first, "waits")
    end_log(first.data)  # it waits, so nothing is settled
    for attempt in (
        lambda: begin_log(second, abandons=False),
        lambda: append(second, "lost"),
        lambda: collect(second.data, "shop", lambda _: None, lambda: PositionRange(Lsn(0), Lsn(0))),
    ):
        with pytest.raises(ConfigError, match=f"{first.data} on .*--abandon-log begins another"):
            attempt()
    assert not (second.data / LOG).exists()
    grow(first)
    end_log(first.data)
    begin_log(second, abandons=False)
    with pytest.raises(ConfigError, match=f"{second.data} on"):
        append(first, "late")
    with closing(DataDirectory(second.data).open_log(second)) as log:
        assert log.find(RequestId("r0")) is not None
    assert append(second, "waits") == Lsn(1)  # as the first host has answered it
    with pytest.raises(RequestConflict):
        append(second, "waits", b"other")
    assert append(second, "new") >= Lsn(1_000_000_000)
    grow(second, "i2")
    assert execute(["verify", SHOP, "--data", str(second.data)]) == 0


def test_lost_host_is_left_by_an_order_and_fenced(host_of: HostOf) -> None:
    """The driver of the former log commits nothing any more, and its requests keep a file of their own."""
    first, second = host_of("first"), host_of("second")
    begin_log(first, abandons=False)
    grow(first, "i1")
    former = DataDirectory(first.data).open_journal_of("shop")
    last = former.last()
    assert last is not None
    append(first, "lost")
    begin_log(second, abandons=True)
    with pytest.raises(Fenced):
        former.commit(Commit(Epoch(last.epoch + 1), last.positions, (), last.time_us))
    former.close()
    with closing(DataDirectory(second.data).open_journal_of("shop")) as journal:
        begun = journal.last()
        assert begun is not None
        assert begun.positions[ONLY_PARTITION] == append(second, "lost")
    begin_log(first, abandons=True)
    assert list(first.data.glob("former-*-log.sqlite"))
    begin_log(first, abandons=False)


def test_folder_belongs_to_one_place(host_of: HostOf, tmp_path: Path) -> None:
    """A folder with other data is not taken, and an order for directories says so."""
    config = host_of("first")
    with pytest.raises(ConfigError, match=r"has the data of s3://.*setting host_data"):
        use_store(config.data, f"s3://{BUCKET}/other")
    (tmp_path / "local" / JOURNAL).mkdir(parents=True)
    with pytest.raises(ConfigError, match="an application without an object store"):
        use_store(tmp_path / "local", config.store)
    with pytest.raises(ConfigError, match="--abandon-log: the log of"):
        begin_log(Config(tmp_path / "local"), abandons=True)
    with pytest.raises(ConfigError, match="name the folder of this host"):
        shared_root(Path(config.store))
    (config.data / SHARED_ROOT).write_text("{")
    with pytest.raises(Corrupt, match="names the object store"):
        shared_root(config.data)


@pytest.mark.parametrize(
    ("variable", "wrong", "message"),
    [
        ("AWS_SECRET_ACCESS_KEY", "wrong", "refuses the credentials .*check AWS_ACCESS_KEY_ID"),
        ("AWS_ENDPOINT_URL", f"http://{HOST}:1", "does not answer; check AWS_ENDPOINT_URL"),
        (
            "PENSTOCK_DATA",
            "s3://missing-bucket/app",
            "bucket missing-bucket does not exist; create",
        ),
    ],
)
def test_store_that_cannot_be_used_is_told_by_every_command(
    host_of: HostOf,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    wrong: str,
    message: str,
) -> None:
    """One sentence with the remedy, and no other data directory is made."""
    monkeypatch.setattr("penstock.files.store_root._PATIENCE_S", 0.1)
    first = host_of("first")
    folder = first.data.with_name("new")
    monkeypatch.setenv("PENSTOCK_DATA", first.store)
    monkeypatch.setenv("PENSTOCK_HOST_DATA", str(folder))
    monkeypatch.setenv(variable, wrong)
    for words in (["sql", "SELECT 1", SHOP], ["keys", "list"], ["run", SHOP], ["status", SHOP]):
        assert execute(words) == 2
        errors = capsys.readouterr().err
        assert re.search(message, " ".join(errors.split()))
    assert not folder.exists()


def test_keys_of_persons_need_a_key_service_and_are_destroyed_for_all_hosts(
    host_of: HostOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No key is in the store as it is; a destroyed one is gone on each host, and its certificate is there."""
    files = [KeyFile(host_of(name).data / SUBJECT_KEYS) for name in ("first", "second")]
    with pytest.raises(ConfigError, match="set key_service"):
        files[0].create()
    with monkeypatch.context() as versioned:
        versioned.setattr(store_root, "_NO_VERSIONS", ())
        with pytest.raises(ConfigError, match="use a bucket without versioning"):
            files[0].create(SERVICE)
    assert not files[1].exists
    files[0].create(SERVICE)
    keys = files[1].keys()
    ada, bob = (keys.seal(name, b"data", b"row") for name in ("User/ada", "User/bob"))
    files[0].destroy("User/ada", 0)
    files[0].destroy("User/ada", 0)
    monkeypatch.setattr(key_file, "FAR_LOOK_S", 0.0)
    with pytest.raises(Erased):
        keys.unseal("User/ada", ada, b"row")
    assert keys.unseal("User/bob", bob, b"row") == b"data"
    with pytest.raises(ConfigError, match="set key_service"):
        files[0].use_service("")
    made = Certificate("User/ada", 0, 3, 1, "journal").sealed()
    Erasures(host_of("first").data).record(made)
    found = Erasures(host_of("second").data)
    assert found.completed("journal", Epoch(3)) == [made]
    found.forget("journal", Epoch(2))
    assert not Erasures(host_of("first").data).every("journal", Epoch(3))


def test_orders_of_a_view_reach_other_hosts(host_of: HostOf) -> None:
    """A view that has never run on a host is known there by its orders, and forgotten everywhere."""
    first, second = (host_of(name).data for name in ("first", "second"))
    view_files.change_orders(first, "sales", lambda orders: replace(orders, paused=True))
    assert view_files.read_orders(second, "sales").paused
    assert view_files.known_views(second) == {"sales"}
    view_files.hold(first, view_files.Held("restored", 1))
    assert view_files.held(second) is not None
    view_files.end_hold(second)
    assert view_files.held(first) is None
    view_files.forget_view(second, "sales")
    assert not view_files.read_orders(first, "sales").paused
