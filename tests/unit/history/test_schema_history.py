"""Replay, trace, what-if, verify and copies over a journal whose class was changed: epochs 0 and 1 have version 1."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.base.ids import Epoch, LogPartition, Lsn
from penstock.cli.main import execute
from penstock.deployment.loading import load_app
from penstock.errors import ClassChanged
from penstock.history.backup import Backups
from penstock.history.restore import fork, restore
from penstock.history.verification import verify
from penstock.journal.api import CHANGES, Commit, PartKind
from penstock.process.data_directory import DataDirectory
from tests.history import journal_of

FIRST = """
from penstock import App, Entity, key

class Item(Entity):
    item_id: str = key()
    cost: int
    old: int = 1

    def raise_by(self, amount: int) -> int:
        self.cost += amount
        return 0

app = App("shop", Item)
"""
SECOND = """
from penstock import App, Entity, key, was

class Item(Entity):
    item_id: str = key()
    stock: int = 7
    price: int | float = was("cost", default=0)

    def raise_by(self, amount: int) -> int:
        self.price += amount
        return 0

app = App("shop", Item)
"""


@pytest.fixture(scope="module")
def specs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Write the sources of both applications."""
    folder = tmp_path_factory.mktemp("sources")
    paths = [folder / "first_shop.py", folder / "second_shop.py"]
    for path, source in zip(paths, (FIRST, SECOND), strict=True):
        path.write_text(source)
    return list(map(str, paths))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, specs: list[str]) -> Path:
    """Give a journal of two epochs of the first application, and one of the second."""
    data = tmp_path_factory.mktemp("shop")
    created = [("Item", name, "create", {"cost": 3}) for name in ("tea", "jam", "nut")]
    journal_of(specs[0], data, [created, [("Item", "jam", "raise_by", (2,))]])
    journal_of(
        specs[1], data, [[("Item", "tea", "raise_by", (1,)), ("Item", "jam", "raise_by", (1,))]]
    )
    return data


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert execute([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_epochs_of_the_present_version_are_replayed(
    data: Path, specs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows before the first replayed epoch are of the former version; the results are as recorded."""
    replayed = told(capsys, "replay", specs[1], "--data", str(data), "--from", "1")
    assert replayed["divergence"] is None
    assert (replayed["first"], replayed["last"], replayed["requests"]) == (1, 2, 3)


def test_trace_and_history_show_one_version(
    data: Path, specs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A row of before the change is shown by the present attributes, so a request shows only its own changes."""
    traced = told(capsys, "trace", "r4", specs[1], "--data", str(data))
    [tea] = traced["entities"]
    assert traced["as_recorded"]
    assert (tea["before"], tea["after"]) == ({"stock": 7, "price": 3.0}, {"stock": 7, "price": 4.0})
    [difference] = tea["differences"]
    assert difference == {"path": "price", "kind": "changed", "before": 3.0, "after": 4.0}
    history = told(capsys, "history", "Item", "jam", specs[1], "--data", str(data), "--from", "1")
    assert [change["differences"] for change in history["changes"]] == [
        [{"path": "price", "kind": "changed", "before": 3.0, "after": 5.0}],
        [{"path": "price", "kind": "changed", "before": 5.0, "after": 6.0}],
    ]


def test_copies_need_no_code_that_fits(
    tmp_path: Path, data: Path, specs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A backup, a fork and a savepoint are made beside code that cannot read the entities, such as a file that is being edited."""
    assert execute(["trace", "r4", specs[0], "--data", str(data)]) != 0
    assert "[class-changed]" in capsys.readouterr().err
    of = [specs[0], "--data", str(data)]
    assert told(capsys, "backup", str(tmp_path / "backups"), *of)["epoch"] == 2
    assert told(capsys, "savepoint", "now", *of)["epoch"] == 2
    assert told(capsys, "savepoint", *of, "--remove", "now") == {"removed": "now"}
    assert told(capsys, "fork", str(tmp_path / "fork"), *of)["epoch"] == 2


def test_all_versions_verify(data: Path, specs: list[str]) -> None:
    """Rows of a version are valid from the epoch on with which it began."""
    assert checked(data, specs[1]) == []


def test_row_before_its_version_began_is_found(tmp_path: Path, specs: list[str]) -> None:
    """A row with a tag of a later version, or of no version, was not written by the code of its time."""
    first, second = map(load_app, specs)
    directory = DataDirectory(tmp_path)
    early = second.entities["Item"].encode({"item_id": "tea", "stock": 1, "price": 1.0})
    good = first.entities["Item"].encode({"item_id": "jam", "cost": 1, "old": 1})
    rows = [("tea", early), ("jam", good), ("nut", b"\x93\xce\x90\x00\x00\x01\x01\x01")]
    with closing(directory.open_journal(first)) as journal:
        table = pa.Table.from_pylist(
            [{"epoch": 0, "entity": "Item", "key": name, "state": row} for name, row in rows],
            CHANGES,
        )
        part = journal.write(PartKind.CHANGES, table, "changes-0")
        journal.commit(Commit(Epoch(0), {LogPartition(0): Lsn(0)}, (part,), 1))
    with closing(directory.open_journal(second)) as journal:
        journal.deploy()
    assert any(
        "2 rows of Item do not have its shape" in what for what in checked(tmp_path, specs[1])
    )


def checked(data: Path, spec: str) -> list[str]:
    """Return the findings of a verification."""
    return [str(finding) for finding in verify(data, load_app(spec), lambda *_: None).findings]


def versions_in(data: Path) -> list[int]:
    with closing(DataDirectory(data).open_journal_of("shop")) as journal:
        return [version.number for version in journal.schemas()["Item"]]


def test_copy_has_the_versions_that_had_begun(tmp_path: Path, data: Path, specs: list[str]) -> None:
    """A copy that ends before the change is of the former class; a complete copy has both versions."""
    first = load_app(specs[0])
    Backups(tmp_path / "backups").make(data, "shop")
    for number, (upto, versions) in enumerate([(1, [1]), (2, [1, 2]), (None, [1, 2])]):
        point = None if upto is None else Epoch(upto)
        copies = [tmp_path / f"fork-{number}", tmp_path / f"restored-{number}"]
        fork(data, "shop", copies[0], point)
        restore(tmp_path / "backups", copies[1], point)
        for copy in copies:
            assert versions_in(copy) == versions
            assert checked(copy, specs[1]) == []
    DataDirectory(tmp_path / "fork-0").check_app(first)
    with pytest.raises(ClassChanged):
        DataDirectory(tmp_path / "fork-1").check_app(first)
    assert versions_in(data) == [1, 2], "the original keeps its file"


def test_kept_what_if_is_of_one_version(
    tmp_path: Path, data: Path, specs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The directory of a what-if begins with the state before it, stored as the present class stores it."""
    kept = tmp_path / "kept"
    options = ("--data", str(data), "--from", "2", "--keep", str(kept))
    found = told(capsys, "what-if", specs[1], *options, "--without", "r4")
    [tea] = found["entities"]["changed"]["shown"]
    assert tea["entity"] == "Item/tea"
    assert versions_in(kept) == [1]
    assert not any("shape" in what for what in checked(kept, specs[1]))


def test_what_if_runs_a_class_that_is_not_deployed(
    tmp_path: Path, data: Path, specs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The other code reads the stored rows as its new version, and its outcome is stored in this version."""
    copy, kept = tmp_path / "copy", tmp_path / "kept"
    fork(data, "shop", copy, Epoch(1))
    options = ("--data", str(copy), "--from", "1", "--keep", str(kept))
    query = "SELECT * FROM Item"
    found = told(capsys, "what-if", specs[0], *options, "--code", specs[1], "--sql", query)
    assert {name: group["count"] for name, group in found["entities"].items()} == {
        "changed": 0,
        "created": 0,
        "deleted": 0,
    }
    [answer] = found["sql"]
    assert answer["columns"]["recorded"] == ["item_id", "cost", "old"]
    assert answer["columns"]["what_if"] == ["item_id", "stock", "price"]
    assert (answer["same"], answer["count"]) == (3, 0), "the keys are compared"
    assert versions_in(copy) == [1], "a what-if deploys nothing"
    assert versions_in(kept) == [1]
    assert not any("shape" in what for what in checked(kept, specs[1]))
