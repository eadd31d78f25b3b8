"""Epochs run again with the code that executed them, side by side with the present code."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import Epoch
from penstock.cli.main import execute
from penstock.deployment.archives import Archives, file_of
from penstock.deployment.loading import load_app
from penstock.deployment.side_modules import SideModules, top_level
from penstock.history.code_versions import CodeVersions
from penstock.history.reader import HistoryReader
from penstock.journal.deployments import Deployments
from tests.history import journal_of
from tests.unit.history.two_versions import Kiosk, fresh

pytestmark = pytest.mark.long

LATE = """
def values():
    import importlib
    from late_pack import absolute
    from .. import relative
    return [module.VALUE for module in (absolute, relative, importlib.import_module("late_pack.named"))]
"""


@pytest.fixture
def kiosk(tmp_path: Path) -> Kiosk:
    """Return an application whose first version ran epochs 0 and 1, and whose second version ran 2 and 3."""
    return fresh(tmp_path)


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    capsys.readouterr()
    code = execute([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_each_epoch_is_replayed_with_its_code(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str]
) -> None:
    """A replay over a deployment finds nothing wrong, in a process that has loaded the present code."""
    code, found = answer(capsys, "replay", kiosk.spec, "--data", str(kiosk.data))
    assert (code, found["divergence"]) == (0, None)
    assert found["deployments"] == [1, None]  # the second deployment has the present source


@pytest.mark.usefixtures("no_experiments")
def test_the_present_code_shows_the_effect_of_a_change(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --present-code, the first epoch of the old code differs, and the cause is the code."""
    words = ["replay", kiosk.spec, "--data", str(kiosk.data), "--present-code"]
    code, found = answer(capsys, *words)
    assert code == 1
    assert found["divergence"]["epoch"] == 1
    assert found["divergence"]["verdict"]["causes"] == ["code"]


def test_what_if_runs_each_epoch_with_its_code(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a change nothing differs across a deployment; an edit and an omission show their own effect alone."""
    words = ["what-if", kiosk.spec, "--data", str(kiosk.data)]
    code, found = answer(capsys, *words)
    assert (code, found["replies"]["count"], found["deployments"]) == (0, 0, [1, None])
    assert all(kind["count"] == 0 for kind in found["entities"].values())
    found = answer(capsys, *words, "--without", "r2")[1]
    assert (found["left_out"]["count"], found["replies"]["count"]) == (1, 0)
    edits = kiosk.data.parent / "edits.jsonl"
    edits.write_text('{"request_id": "r1", "arguments": [3]}')
    found = answer(capsys, *words, "--edit", str(edits))[1]
    (reply,) = found["replies"]["shown"]
    assert (reply["request_id"], reply["recorded"], reply["what_if"]) == ("r1", -93, -90)
    assert answer(capsys, *words, "--from", "2")[1]["deployments"] == [None]
    execute(words)
    out = " ".join(capsys.readouterr().out.split())
    assert "with the code of deployment 1, and the present code" in out


def test_what_if_with_other_code_runs_it_for_all_epochs(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --code, the recorded replies of the old code are compared with those of the other code."""
    words = ["what-if", kiosk.spec, "--data", str(kiosk.data), "--code", kiosk.spec]
    found = answer(capsys, *words)[1]
    (reply,) = found["replies"]["shown"]
    assert (reply["request_id"], reply["recorded"], reply["what_if"]) == ("r1", -93, -192)
    assert found["deployments"] == []


def test_what_if_goes_on_with_the_entities_of_the_earlier_code(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str]
) -> None:
    """A method that is gone is edited as its epoch had it, and the present code reads the rows that it has left."""
    attribute, method = "    total: int = 0\n", "    def order(self, count: int)"
    kiosk.change(attribute, f"{attribute}    note: str = 'none'\n")
    kiosk.change(method, "    def buy(self, amount: int)")
    kiosk.change("total(self.price, count) - discount(count)", "self.total + amount")
    kiosk.change(f"{Path(kiosk.spec).stem}_rule.self.total", "self.total")
    journal_of(kiosk.spec, kiosk.data, [[("Item", "tea", "buy", (9,))]], deploys=True)
    edits = kiosk.data.parent / "edits.jsonl"
    edits.write_text(
        '{"request_id": "r3", "arguments": {"count": 4}}\n'
        '{"request_id": "new", "after": "r1", "entity": "Item", "key": "oil", "method": "create"}\n'
        '{"request_id": "new-2", "after": "new", "entity": "Item", "key": "oil", "method": "order", "arguments": [1]}\n'
    )
    kept = kiosk.data.parent / "kept"
    words = ["what-if", kiosk.spec, "--data", str(kiosk.data), "--edit", str(edits)]
    words += ["--keep", str(kept), "--sql", "SELECT name, total, note FROM Item ORDER BY name"]
    code, found = answer(capsys, *words)
    assert (code, found["deployments"]) == (0, [1, 2, None])
    replies = {one["request_id"]: one["what_if"] for one in found["replies"]["shown"]}
    assert replies == {"r3": 12 + 2 - 200, "r4": 12 + 2 - 200 + 9}
    assert [one["what_if"] for one in found["inserted"]["shown"]][1] == 1 - 100
    assert [one["entity"] for one in found["entities"]["changed"]["shown"]] == ["Item/tea"]
    assert [one["entity"] for one in found["entities"]["created"]["shown"]] == ["Item/oil"]
    (query,) = found["sql"]
    assert query["what_if"] == [["oil", -99, "none"], ["tea", -177, "none"]]


def test_what_if_without_an_archive_names_its_own_way_out(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str]
) -> None:
    """Code that is missing is an error; the present code for all epochs is asked for by --code."""
    first, _ = Deployments(kiosk.data / "journal").every()
    (kiosk.data / file_of(first.code.archive)).unlink()
    words = ["what-if", kiosk.spec, "--data", str(kiosk.data)]
    assert execute(words) != 0
    assert f"--code {kiosk.spec} runs" in "".join(capsys.readouterr().err.replace("\n", " "))
    assert execute([*words, "--code", kiosk.spec]) == 0


@pytest.mark.usefixtures("no_experiments")
def test_a_difference_names_the_deployment_and_changed_versions(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str]
) -> None:
    """If archived code comes out differently, the versions that have changed since are shown."""
    first, second = Deployments(kiosk.data / "journal").every()
    files = Archives(kiosk.data).files(first.code.archive)
    rule = next(path for path in files if path.endswith("_rule.py"))
    kiosk.redeploy({**files, rule: files[rule].replace(b"+ 1", b"+ 7")}, python="3.9.1")
    code, found = answer(capsys, "replay", kiosk.spec, "--data", str(kiosk.data))
    assert code == 1
    assert found["divergence"]["deployment"] == 1
    assert found["divergence"]["environment"][0].startswith("Python 3.9.1 → ")
    assert second.number == 2


def test_versions_of_one_module_live_side_by_side(kiosk: Kiosk) -> None:
    """Imports inside of handlers find their own version, and the process keeps its modules."""
    app = load_app(kiosk.spec)
    before, path = dict(sys.modules), list(sys.path)
    with HistoryReader(kiosk.data, app) as past, CodeVersions(past, app, kiosk.spec) as versions:
        old, new = versions.at(Epoch(1)), versions.at(Epoch(2))
        assert (old.deployment, new.deployment) == (1, None)
        assert old.app is not new.app
        assert versions.at(Epoch(0)) is old
        for _ in range(2):
            for version, discount in ((old, 100), (new, 200)):
                with version.active():
                    order: Any = version.app.entities["Item"].cls.__dict__["order"]
                    item = type("Item", (), {"price": 1})()
                    assert order(item, 1) == 1 + discount // 100 - discount
        scratch = Path(old.location.folder)
        assert scratch.is_dir()
    assert not scratch.exists()
    assert {name: sys.modules[name] for name in before} == before
    assert sys.path == path


def test_a_trace_and_a_history_run_the_code_of_their_epoch(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str]
) -> None:
    """A request of the old code is as recorded; the next change is found in an epoch of the new code."""
    code, found = answer(capsys, "trace", "r1", kiosk.spec, "--data", str(kiosk.data))
    assert (code, found["as_recorded"]) == (0, True)
    (item,) = found["entities"]
    assert item["next"]["request_id"] == "r2"
    words = ["history", "Item", "tea", kiosk.spec, "--data", str(kiosk.data)]
    code, found = answer(capsys, *words)
    assert [change["request_id"] for change in found["changes"]] == ["r0", "r1", "r2"]
    words = ["trace", "r1", kiosk.spec, "--data", str(kiosk.data), "--present-code"]
    assert answer(capsys, *words)[1]["as_recorded"] is False


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("missing", "is missing; put the file back from a backup; --present-code runs"),
        ("library", "the code of deployment 1 cannot be loaded"),
    ],
)
def test_code_that_cannot_be_loaded_is_an_error_with_its_remedy(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str], damage: str, message: str
) -> None:
    """A missing archive and a missing library name the deployment and the way around it."""
    archives = Archives(kiosk.data)
    first, _ = Deployments(kiosk.data / "journal").every()
    files = archives.files(first.code.archive)
    if damage == "missing":
        (kiosk.data / file_of(first.code.archive)).unlink()
    else:
        spoiled = {path: b"import no_such_library\n" + text for path, text in files.items()}
        kiosk.redeploy(spoiled, python="3.9.1")
    assert execute(["replay", kiosk.spec, "--data", str(kiosk.data)]) != 0
    assert message in " ".join(capsys.readouterr().err.split())
    words = ["replay", kiosk.spec, "--data", str(kiosk.data), "--from", "2"]
    assert execute(words) == 0


def test_late_and_relative_imports_find_their_own_version(tmp_path: Path) -> None:
    """Imports inside of functions, absolute, relative and by name, agree in two versions of a package."""
    sides: list[tuple[SideModules, Any]] = []
    for version in ("1", "2"):
        folder = tmp_path / version / "late_pack"
        (folder / "inner").mkdir(parents=True)
        (folder / "__init__.py").write_text("from .inner import values\n")
        (folder / "inner" / "__init__.py").write_text(LATE)
        for name in ("absolute", "relative", "named"):
            (folder / f"{name}.py").write_text(f"VALUE = {version}\n")
        modules = SideModules(tmp_path / version, {"late_pack"})
        with modules.active():
            sides.append((modules, importlib.import_module("late_pack")))
    for _ in range(2):
        for number, (modules, package) in enumerate(sides, 1):
            with modules.active():
                assert package.values() == [number, number, number]
                assert sys.modules["late_pack"] is package
        assert "late_pack" not in sys.modules


def test_versions_of_a_changed_class_read_their_own_rows(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str]
) -> None:
    """A class gets an attribute in a deployment, and another one in the present code; all epochs are as recorded."""
    attribute = "    total: int = 0\n"
    kiosk.change(attribute, f"{attribute}    note: str = 'none'\n")
    journal_of(kiosk.spec, kiosk.data, [[("Item", "tea", "order", (9,))]], deploys=True)
    kiosk.change(attribute, f"{attribute}    size: int = 7\n")
    code, found = answer(capsys, "replay", kiosk.spec, "--data", str(kiosk.data))
    assert (code, found["divergence"], found["deployments"]) == (0, None, [1, 2, 3])
    for request_id in ("r1", "r2", "r4"):
        words = ["trace", request_id, kiosk.spec, "--data", str(kiosk.data)]
        code, found = answer(capsys, *words)
        assert (code, found["as_recorded"]) == (0, True)
    assert [set(one["after"]) for one in found["entities"]] == [{"price", "total", "note"}]
    words = ["history", "Item", "tea", kiosk.spec, "--data", str(kiosk.data)]
    code, found = answer(capsys, *words)
    assert [change["request_id"] for change in found["changes"]] == ["r0", "r1", "r2", "r4"]


def test_code_of_a_shape_that_came_back_reads_the_rows_between(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str]
) -> None:
    """A class gets an attribute, loses it, and gets it again; each deployment reads all rows of its time."""
    attribute, note = "    total: int = 0\n", "    note: str = 'none'\n"
    orders = [[("Item", "tea", "order", (9,))]]
    for before, after in [
        (attribute, attribute + note),
        (attribute + note, attribute),
        (attribute, f"{attribute}    size: int = 7\n"),
    ]:
        kiosk.change(before, after)
        journal_of(kiosk.spec, kiosk.data, orders, deploys=True)
    code, found = answer(capsys, "replay", kiosk.spec, "--data", str(kiosk.data))
    assert (code, found["divergence"], found["deployments"]) == (0, None, [1, 2, 3, 4, None])


def test_data_file_hides_no_module(tmp_path: Path) -> None:
    """A file `json.csv` of the source is no module, so each version uses the same `json`."""
    (tmp_path / "prices.csv").write_text("1")
    (tmp_path / "json.csv").write_text("1")
    (tmp_path / "penstock").mkdir()
    (tmp_path / "penstock" / "a.txt").write_text("1")
    (tmp_path / "kiosk.py").write_text("")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    assert top_level(tmp_path) == {"kiosk", "pack"}
