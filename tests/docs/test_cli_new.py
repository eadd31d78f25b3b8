"""`penstock new` writes an application that works as it is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli import new
from penstock.cli.main import execute
from tests.checkout import TOP

pytestmark = pytest.mark.long

PYTEST = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_new_application_passes_its_own_test(tmp_path: Path) -> None:
    """The new application has at most 20 lines, and its test passes at once."""
    assert execute(["new", "kiosk"]) == 0
    folder = tmp_path / "kiosk"
    assert sorted(path.name for path in folder.iterdir()) == sorted(new.FILES)
    assert len((folder / "app.py").read_text().splitlines()) <= 20
    done = subprocess.run(PYTEST, cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode()


def test_new_application_serves_the_paths_of_its_readme(tmp_path: Path) -> None:
    """The requests that the README shows are paths of the application."""
    assert execute(["new", "shelf"]) == 0
    done = subprocess.run(
        [sys.executable, "-c", "import app; print(app.app.name, *app.app.routes, sep='\\n')"],
        cwd=tmp_path / "shelf",
        capture_output=True,
        text=True,
        check=True,
    )
    name, *routes = done.stdout.splitlines()
    assert name == "shelf"
    paths = [re.findall(r"(?:verb|path)='([^']*)'", one) for one in routes]
    readme = (tmp_path / "shelf" / "README.md").read_text()
    assert sorted(paths) == [
        ["GET", "/items/{item_id}"],
        ["POST", "/items/create/{item_id}"],
        ["POST", "/items/{item_id}/take/{amount}"],
    ]
    for example in ("items/tea\n", "items/create/tea?stock=5", "items/tea/take/2"):
        assert f"http://127.0.0.1:8000/{example}" in readme


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder or file of the name is left as it is."""
    (tmp_path / "kiosk").mkdir()
    assert execute(["new", "kiosk"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert list((tmp_path / "kiosk").iterdir()) == []


@pytest.mark.parametrize("name", ["Kiosk", "2nd", "a-b", "class", "../x y", ""])
def test_name_that_python_cannot_import_is_refused(name: str, tmp_path: Path) -> None:
    """The name is that of a folder, an application and perhaps a package."""
    assert execute(["new", name]) == 2
    assert list(tmp_path.iterdir()) == []


TESTED_ELSEWHERE = {"tpcc"}
EXAMPLES = sorted(path.parent.name for path in (TOP / "examples").glob("*/__init__.py"))


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_is_an_application(
    example: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The copy of an example is explained under the name of its folder."""
    folder = f"my_{example}"
    assert execute(["new", folder, "--example", example]) == 0
    assert example in new.HELP
    assert execute(["explain", folder]) == 0
    assert f"{example}: " in capsys.readouterr().out


def test_examples_pass_their_own_tests() -> None:
    """The copies of the examples pass their tests, side by side."""
    folders = [f"my_{example}" for example in EXAMPLES if example not in TESTED_ELSEWHERE]
    for folder in folders:
        assert execute(["new", folder, "--example", folder.removeprefix("my_")]) == 0
    done = subprocess.run([*PYTEST, *folders], capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode()


def test_unknown_example_is_answered_with_the_examples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message lists the examples that exist, and nothing is written."""
    assert execute(["new", "--example", "shp"]) == 2
    assert "bank, " in capsys.readouterr().err
    assert execute(["new"]) == 2
    assert "penstock new NAME" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
