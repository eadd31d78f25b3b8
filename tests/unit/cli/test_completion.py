"""Completion in a shell: it offers the words that fit, and is silent when it fails."""

from pathlib import Path

import pytest
import typer
from typer.core import TyperCommand

from penstock.base.ids import RequestId
from penstock.cli import completion
from penstock.files.layout import LOG
from penstock.log.api import Entry
from penstock.log.sqlite import SqliteLog
from tests.checkout import SHOP


def context(**params: object) -> typer.Context:
    found = typer.Context(TyperCommand("command"))
    found.params.update(params)
    return found


def test_applications_are_the_files_and_packages_that_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file without an App is left out; a package is named by its folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kiosk.py").write_text("app = App('kiosk')")
    (tmp_path / "kind.py").write_text("")
    (tmp_path / "shops" / "kayak").mkdir(parents=True)
    (tmp_path / "shops" / "kayak" / "__init__.py").write_text("app = App('kayak')")
    assert completion.applications(context(), [], "") == ["kiosk.py", "shops/kayak"]
    assert completion.applications(context(), [], "ki") == ["kiosk.py"]


def test_words_of_a_call_are_classes_and_then_methods() -> None:
    """The first word is a class or a function; no word is offered for a key."""
    first = completion.call_words(context(words=[SHOP]), [], "")
    assert {"Item", "Order", "User", "init_items"} <= set(first)
    assert completion.call_words(context(words=[SHOP, "Item"]), [], "") == []
    methods = completion.call_words(context(named=SHOP, words=["Item", "i1"]), [], "")
    assert {"add", "subtract", "create", "delete"} <= set(methods)
    assert completion.call_words(context(named=SHOP, words=["Item", "i1"]), [], "su") == [
        "subtract"
    ]


def test_words_of_an_append_are_open_streams() -> None:
    """Only streams that take appends are offered, and no word for an event."""
    spec = "tests.unit.gateway.newsstand_app:app"
    found = completion.append_words(context(words=[spec]), [], "")
    assert found == ["headlines", "sales", "readers", "fussy", "scarce"]
    assert completion.append_words(context(named=spec, words=[]), [], "sa") == ["sales"]
    assert completion.append_words(context(words=[spec, "sales"]), [], "") == []


def test_request_ids_are_the_newest_of_the_log(tmp_path: Path) -> None:
    """The newest request is the first word."""
    log = SqliteLog(tmp_path / LOG)
    log.append([Entry(RequestId(f"r{number}"), b"", b"", 0) for number in range(99)])
    log.close()
    found = completion.request_ids(context(data=tmp_path), [], "")
    assert found[:2] == ["r98", "r97"]
    assert len(found) == completion.IDS_MAX
    assert completion.request_ids(context(data=tmp_path), [], "r5") == [
        f"r5{number}" for number in reversed(range(10))
    ]


@pytest.mark.parametrize("complete", [completion.request_ids, completion.stored_classes])
def test_a_directory_without_data_completes_nothing(
    complete: completion.Complete, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No error appears, and nothing is created."""
    monkeypatch.chdir(tmp_path)
    assert complete(context(), [], "") == []
    assert complete(context(data=tmp_path / "none"), [], "") == []
    assert list(tmp_path.iterdir()) == []


def test_a_broken_application_completes_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Code that prints and ends the process while it is imported disturbs no shell."""
    broken = tmp_path / "broken_for_completion.py"
    broken.write_text("import sys\nprint('noise')\nsys.exit(3)\n")
    assert completion.call_words(context(words=[str(broken)]), [], "") == []
    assert capfd.readouterr() == ("", "")
