"""Completion in a shell: it offers the words that fit, and is silent when it fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.core import TyperCommand

from penstock.cli import completion, word_completion
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
    first = word_completion.call_words(context(words=[SHOP]), [], "")
    assert {"Item", "Order", "User", "init_items"} <= set(first)
    assert word_completion.call_words(context(words=[SHOP, "Item"]), [], "") == []
    methods = word_completion.call_words(context(named=SHOP, words=["Item", "i1"]), [], "")
    assert {"add", "subtract", "create", "delete"} <= set(methods)
    assert word_completion.call_words(context(named=SHOP, words=["Item", "i1"]), [], "su") == [
        "subtract"
    ]


def test_words_of_a_call_follow_the_setting_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an application in penstock.toml, the first word is a class; a word with a colon names another one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "penstock.toml").write_text(f'app = "{SHOP}"')
    assert word_completion.call_words(context(), [], "It") == ["Item"]
    assert word_completion.call_words(context(words=["Item", "i1"]), [], "su") == ["subtract"]
    spec = "tests.unit.gateway.newsstand_app:app"
    assert word_completion.append_words(context(words=[spec]), [], "sa") == ["sales"]


def test_targets_of_a_pause_are_classes_methods_functions_and_streams() -> None:
    """Everything that a pause can name is offered."""
    assert word_completion.flow_targets(context(words=[SHOP]), [], "Item.s") == ["Item.subtract"]
    assert word_completion.flow_targets(context(words=[SHOP]), [], "init_i") == ["init_items"]
    spec = "tests.unit.gateway.newsstand_app:app"
    assert word_completion.flow_targets(context(words=[spec]), [], "streams/sa") == [
        "streams/sales"
    ]


@pytest.mark.parametrize(
    ("words", "joined", "given"),
    [
        (["penstock", "ca"], ["penstock", "ca"], ""),
        (["p", "call", "kiosk.py", ":", "app", "It"], ["p", "call", "kiosk.py:app", "It"], ""),
        (["p", "trace", "order", ":", "1"], ["p", "trace", "1"], "order:"),
        (["p", "trace", "order", ":"], ["p", "trace", ""], "order:"),
        (["p", "run", "--app", "=", "kio"], ["p", "run", "--app", "kio"], ""),
        (["p", "run", "--app", "="], ["p", "run", "--app", ""], ""),
        (["p", "call", "Item", "a", "add", "n", "=", "3", ""], ["p", "call", "Item", "a", "add", "n=3", ""], ""),
        (["p", "status", "--url", "http", ":", "//h", ":", "80", "a"], ["p", "status", "--url", "http://h:80", "a"], ""),
    ],
)  # fmt: skip
def test_words_that_bash_divides_are_joined(
    words: list[str], joined: list[str], given: str
) -> None:
    """bash divides words at colons and equals signs; an option and its value stay two words."""
    environment = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    completion.join_words(environment)
    assert environment["COMP_WORDS"].split("\n") == joined
    assert (environment["COMP_CWORD"], environment["_PENSTOCK_GIVEN"]) == (
        str(len(joined) - 1),
        given,
    )


def test_bash_gets_words_without_the_part_before_a_colon(tmp_path: Path) -> None:
    """bash replaces only what follows the last colon of an incomplete word."""
    (tmp_path / "order:17.py").write_text("app = App('kiosk')")
    words = ["penstock", "status", "order", ":", "1"]
    asked = {"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words)}
    done = subprocess.run(
        [sys.executable, "-m", "penstock"],
        env=os.environ | asked | {"COMP_CWORD": str(len(words) - 1)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == ("17.py", "")


def test_words_of_an_append_are_open_streams() -> None:
    """Only streams that take appends are offered, and no word for an event."""
    spec = "tests.unit.gateway.newsstand_app:app"
    found = word_completion.append_words(context(words=[spec]), [], "")
    assert found == ["headlines", "sales", "readers", "fussy", "scarce"]
    assert word_completion.append_words(context(named=spec, words=[]), [], "sa") == ["sales"]
    assert word_completion.append_words(context(words=[spec, "sales"]), [], "") == []


@pytest.mark.parametrize(
    "complete", [word_completion.stored_streams, word_completion.stored_classes]
)
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
    assert word_completion.call_words(context(words=[str(broken)]), [], "") == []
    assert capfd.readouterr() == ("", "")


def test_words_of_an_order_about_a_view_are_views(tmp_path: Path) -> None:
    """The application comes first, then its views."""
    path = tmp_path / "shown_jars.py"
    path.write_text(
        "from penstock import App, Entity, key, sqlite, view\n"
        "class Jar(Entity):\n    name: str = key()\n"
        "app = App('jars', Jar, view('reporting', sqlite(), Jar))\n"
    )
    assert word_completion.view_names(context(words=[str(path)]), [], "re") == ["reporting"]
