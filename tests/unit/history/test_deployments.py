"""Deployments: which code ran since which epoch, in the data directory and in its copies."""

import json
import os
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import pytest

from penstock.base.ids import Epoch
from penstock.cli.main import execute
from penstock.deployment.archives import Archives, file_of
from penstock.deployment.deployment_start import deploy, remove_surplus_archives
from penstock.deployment.loading import load_app
from penstock.errors import Corrupt
from penstock.files.layout import ARCHIVES
from penstock.history.backup import Backups
from penstock.history.restore import fork, restore
from penstock.history.verification import verify
from penstock.journal.deployments import (
    Deployments,
    deployment_at,
    needed_archives,
)
from penstock.model.control import DeployedCode
from penstock.native.choice import implementation
from penstock.process.data_directory import DataDirectory
from tests.checkout import SHOP
from tests.unit.history import copied_shop
from tests.unit.history.copied_shop import CREATED, EPOCHS


def code(archive: str) -> DeployedCode:
    return DeployedCode(archive, "shop", "app", "3.11", {})


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Return the data directory of a shop with deployments since epochs 0, 2 and 4."""
    data = copied_shop.made(tmp_path / "data")
    deployments, archives = Deployments(data / "journal"), Archives(data)
    for epoch in (0, 2, 4):
        name = archives.put(f"archive of {epoch}".encode())
        deployments.record(Epoch(epoch), 0, code(name), {"Item": epoch})
    return data


def since(data: Path) -> list[int]:
    return [deployment.since for deployment in Deployments(data / "journal").every()]


def archived(data: Path) -> int:
    return len(list((data / ARCHIVES).iterdir()))


def test_a_driver_records_its_code_once(tmp_path: Path) -> None:
    """A second start with the same code records nothing, before and after its first epoch."""
    app = load_app(SHOP)
    copied_shop.made(tmp_path, CREATED)
    with closing(DataDirectory(tmp_path).open_journal(app)) as journal:
        first = deploy(tmp_path, SHOP, app, journal)
        assert deploy(tmp_path, SHOP, app, journal) is None
    copied_shop.made(tmp_path, EPOCHS[1:])
    with closing(DataDirectory(tmp_path).open_journal(app)) as journal:
        assert deploy(tmp_path, SHOP, app, journal) is None
    assert first is not None
    assert (first.number, first.since) == (1, 1)
    assert first.shapes == {name: shape.tag for name, shape in app.shapes.items()}
    assert set(Archives(tmp_path).files(first.code.archive)) >= {"shop/__init__.py"}
    assert list(first.code.libraries) == ["penstock"]


def test_a_deployment_that_executed_nothing_is_replaced(tmp_path: Path) -> None:
    """Saves without a request between them leave one deployment."""
    deployments = Deployments(tmp_path)
    deployments.record(Epoch(0), 0, code("a"), {})
    deployments.record(Epoch(5), 0, code("b"), {})
    assert deployments.record(Epoch(5), 0, code("a"), {}) is None
    assert [(each.number, each.code.archive) for each in deployments.every()] == [(1, "a")]
    deployments.record(Epoch(5), 0, code("c"), {})
    deployments.record(Epoch(5), 0, code("d"), {})
    assert [(each.number, each.code.archive) for each in deployments.every()] == [
        (1, "a"),
        (2, "d"),
    ]


def test_the_deployment_of_an_epoch_is_the_last_one_before_it(tmp_path: Path) -> None:
    """Epochs before the first deployment have none; an archive is needed up to the next deployment."""
    deployments = Deployments(tmp_path)
    deployments.record(Epoch(3), 0, code("a"), {})
    deployments.record(Epoch(7), 0, code("b"), {})
    every = deployments.every()
    found = [deployment_at(every, Epoch(epoch)) for epoch in (2, 3, 6, 7)]
    assert [each and each.code.archive for each in found] == [None, "a", "a", "b"]
    assert needed_archives(every, Epoch(6)) == {"a", "b"}
    assert needed_archives(every, Epoch(7)) == {"b"}
    assert needed_archives((), Epoch(0)) == set()


def test_a_damaged_file_of_deployments_is_reported(recorded: Path) -> None:
    """A reader refuses the file, and verify names it."""
    path = recorded / "journal" / "_deployments.json"
    path.write_bytes(path.read_bytes().replace(b"3.11", b"3.12"))
    with pytest.raises(Corrupt, match="does not have its checksum"):
        Deployments(recorded / "journal").every()
    found = verify(recorded, load_app(SHOP), lambda *_: None).problems
    assert [finding.where for finding in found] == ["journal/_deployments.json"]


def test_retention_keeps_the_archives_that_held_epochs_need(recorded: Path) -> None:
    """An archive that no deployment names is removed, but not while its deployment may be under way."""
    archives, source = (
        Archives(recorded),
        b"of a driver that died before it recorded the deployment",
    )
    path = recorded / file_of(archives.put(source))
    with closing(DataDirectory(recorded).open_journal(load_app(SHOP))) as journal:
        assert remove_surplus_archives(recorded, journal) == 0
        os.utime(path, (0, 0))
        archives.put(source)
        assert remove_surplus_archives(recorded, journal) == 0
        os.utime(path, (0, 0))
        vanished = (
            recorded / ARCHIVES / ".other.zip.1234.tmp"
        )  # as a file that is renamed meanwhile
        vanished.symlink_to("nothing")
        assert remove_surplus_archives(recorded, journal) == 1
        vanished.unlink()
    assert archived(recorded) == 3


def test_verify_finds_missing_and_changed_archives(recorded: Path) -> None:
    """Each damaged archive is a finding of its own."""
    first, second, third = sorted((recorded / ARCHIVES).iterdir())
    first.unlink()
    second.write_bytes(b"")
    found = verify(recorded, load_app(SHOP), lambda *_: None).problems
    assert [finding.where for finding in found] == [
        f"archives/{first.name}",
        f"archives/{second.name}",
    ]
    assert third.exists()


def test_a_fork_has_the_deployments_up_to_its_epoch(recorded: Path, tmp_path: Path) -> None:
    """Later deployments and their archives are dropped."""
    fork(recorded, "shop", tmp_path / "old", Epoch(3))
    fork(recorded, "shop", tmp_path / "new", None)
    assert since(tmp_path / "old") == [0, 2]
    assert archived(tmp_path / "old") == 2
    assert since(tmp_path / "new") == [0, 2, 4]
    assert archived(tmp_path / "new") == archived(recorded) == 3


def test_a_backup_has_the_deployments_with_their_archives(recorded: Path, tmp_path: Path) -> None:
    """A restored directory has the deployments up to its epoch, with their archives."""
    Backups(tmp_path / "backups").make(recorded, "shop")
    restore(tmp_path / "backups", tmp_path / "restored", Epoch(2))
    assert since(tmp_path / "restored") == [0, 2]
    for deployment in Deployments(tmp_path / "restored" / "journal").every():
        path = tmp_path / "restored" / file_of(deployment.code.archive)
        assert path.read_bytes() == f"archive of {deployment.since}".encode()


def test_copies_have_live_deployments_and_those_that_wait(recorded: Path, tmp_path: Path) -> None:
    """A branch at the epoch of a deployment has it in force, and a deployment in the log finds its archive."""
    deployments, archives = Deployments(recorded / "journal"), Archives(recorded)
    deployments.keep_prefix(Epoch(2))
    live = archives.put(b"live")
    with closing(DataDirectory(recorded).open_journal_of("shop")) as journal:
        last = journal.last()
    assert last is not None
    deployments.record(Epoch(last.epoch + 1), 0, code(live), {}, live=True)
    waiting = archives.put(b"waiting")
    Backups(tmp_path / "backups").make(recorded, "shop")
    restore(tmp_path / "backups", tmp_path / "restored", None)
    fork(recorded, "shop", tmp_path / "forked", None)
    for copy in (tmp_path / "restored", tmp_path / "forked"):
        assert since(copy) == [0, 2, last.epoch + 1]
        assert Archives(copy).read(live) == b"live"
        assert Archives(copy).read(waiting) == b"waiting"
    fork(recorded, "shop", tmp_path / "before", Epoch(last.epoch - 1))
    assert since(tmp_path / "before") == [0, 2]
    assert not (tmp_path / "before" / file_of(waiting)).exists()


def test_apps_lists_deployments_and_writes_their_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON, the table and the written source agree with what was recorded."""
    data, app = tmp_path / "data", load_app(SHOP)
    copied_shop.made(data, CREATED)
    with closing(DataDirectory(data).open_journal(app)) as journal:
        deploy(data, SHOP, app, journal)
    Deployments(data / "journal").record(Epoch(9), 1, code("a" * 64), {"Item": 1})
    assert execute(["apps", "--data", str(data), "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["number"], first["since"], first["app"]) == (1, 1, "shop:app")
    assert second["changed_classes"] == ["Item", "Order", "User"]
    assert (
        f"penstock {version('penstock')}, {implementation()} → absent" in second["changed_versions"]
    )
    monkeypatch.setenv("COLUMNS", "300")
    assert execute(["apps", "--data", str(data)]) == 0
    assert "stored form of Item, Order, User" in capsys.readouterr().out
    assert execute(["apps", "--data", str(data), "--source", "1", str(tmp_path / "source")]) == 0
    capsys.readouterr()
    written = (tmp_path / "source" / "shop" / "stock.py").read_bytes()
    assert written == Path(SHOP, "stock.py").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--source", "7", "new"], "has no deployment 7; it has deployments 1 to 3"),
        (["--source", "1", "."], "is not empty"),
        (["--source", "1", "new"], "was changed"),
    ],
)
def test_apps_says_why_it_writes_no_source(
    recorded: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    """Wrong numbers, full directories and changed archives have their own messages."""
    for path in (recorded / ARCHIVES).iterdir():
        path.write_bytes(b"")
    assert execute(["apps", "--data", str(recorded), *arguments]) != 0
    assert message in " ".join(capsys.readouterr().err.split())
