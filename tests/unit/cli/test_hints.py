"""Hints lead where they say: the commands, options and settings that messages name exist."""

import ast
import errno
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.commands import COMMANDS, load
from penstock.cli.error_output import ADVICE, describe, show
from penstock.cli.main import execute
from penstock.errors import Aborted, ConfigError
from penstock.process.config import load_config, meanings
from tests.checkout import SHOP, TOP

SOURCE = TOP / "src" / "penstock"
COMMAND = re.compile(r"(?<![\w./-])(?<!from )penstock ([a-z][a-z-]+)((?:(?!penstock)[^.,;:\n`])*)")
NAMED = re.compile(r"(?<!from )penstock[ \"'\\]")
"""A place in a source that may belong to a text with a command: most files have none, and need not be parsed."""

OPTION = re.compile(r"(?<!\S)--[a-z][a-z-]*")
SETTING = re.compile(r"\b(?:limits|gateway|view|history)\.[a-z_]+\b")
EVERYWHERE = {"--help", "--debug"}


def texts() -> Iterator[tuple[str, str]]:
    """Yield every text in the source that may name a command, with its place."""
    for path in sorted(SOURCE.rglob("*.py")):
        if not NAMED.search(source := path.read_text()):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{path.relative_to(TOP)}:{node.lineno}", node.value


def options_of(command: Any) -> set[str]:
    """Return the options of a command and of the commands below it."""
    found = {name for parameter in command.params for name in parameter.opts}
    return found.union(*map(options_of, getattr(command, "commands", {}).values()))


def test_every_command_that_a_text_names_exists() -> None:
    """Messages, help and documentation in the source name commands and options that exist."""
    options = {
        name: options_of(load(name)) | EVERYWHERE
        for name, listing in COMMANDS.items()
        if listing.module.startswith("penstock.")
    }
    wrong = [
        f"{place}: penstock {name}{rest}"
        for place, text in texts()
        for name, rest in COMMAND.findall(text)
        if name not in COMMANDS
        or not set(OPTION.findall(rest)) <= options.get(name, {*OPTION.findall(rest)})
    ]
    assert wrong == []


def test_advice_names_settings_and_options_that_exist() -> None:
    """Each setting in the advice exists, and each option stands behind a command: not every command has it."""
    every = EVERYWHERE.union(
        *(options_of(load(name)) for name, one in COMMANDS.items() if one.module.startswith("pen"))
    )
    told = " ".join(ADVICE.values())
    assert set(OPTION.findall(told)) <= every
    behind = " ".join(rest for _, rest in COMMAND.findall(told))
    assert set(OPTION.findall(told)) <= EVERYWHERE.union(OPTION.findall(behind))
    assert set(SETTING.findall(told)) <= set(meanings())


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("pol_ms", ["poll_ms"]),
        ("port", ["gateway.port"]),
        ("gateway.prt", ["gateway.port"]),
        ("time_ms", ["limits.time_ms", "view.time_ms"]),
        ("nonsense", []),
    ],
)
def test_unknown_setting_names_near_misses_only(name: str, near: list[str], tmp_path: Path) -> None:
    """A wrong name is answered with the settings that it resembles, never with the whole list."""
    with pytest.raises(ConfigError) as caught:
        load_config(data=tmp_path, environment={f"PENSTOCK_{name.upper().replace('.', '_')}": "1"})
    message = str(caught.value)
    for one in near:
        assert one in message
    assert sum(one in message.split() for one in meanings()) <= 3
    assert ("did you mean" in message) == bool(near)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["call", SHOP, "Item", "i1", "create", "--jsn"], "did you mean --json?"),
        (["call", "--timeot", "3", SHOP, "Item", "i1", "add", "1"], "did you mean --timeout?"),
        (["append", SHOP, "news", "--zzzzzzzz"], "no option --zzzzzzzz. A word"),
        (["call", SHOP, "Item", "i1", "add", "--Price2", "1"], "no option --Price2"),
        (["call", SHOP, "Itm", "i1", "add", "1"], "no class or function 'Itm'; did you mean Item?"),
        (["call", SHOP, "Item", "i1", "ad", "1"], "no method of Item 'ad'; did you mean add?"),
        (["call", SHOP, "Item.create", "price=3"], "write Item KEY create [ARGUMENT …]"),
        (["call", SHOP, "Item", "create"], "write Item KEY METHOD [ARGUMENT …]"),
        (["flow", "pause", SHOP, "Itm", "--reason", "r"], "did you mean Item?"),
    ],
)  # fmt: skip
def test_wrong_word_is_named_with_what_is_meant(
    words: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An option, class or method that does not exist is refused before anything is sent, with a near miss."""
    assert execute([*words, "--data", str(tmp_path / "data"), "--json"]) == 2
    assert message in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.mark.parametrize("words", [["status"], ["keys", "list"], ["keys", "revoke", "reader"]])
def test_data_directory_that_does_not_exist_is_named(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistyped directory is an error, and is not made: an empty answer would look like that of a new application."""
    mistyped = tmp_path / "mistyped"
    assert execute([*words, "--data", str(mistyped), "--json"]) == 2
    message = json.loads(capsys.readouterr().out)["error"]["message"]
    assert message == f"the data directory {mistyped} does not exist"
    assert not mistyped.exists()


@pytest.mark.parametrize("words", [["run", SHOP], ["status"], ["explain", SHOP]])
def test_file_in_place_of_the_data_directory_is_named(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The caller must change the option: it is no failure of the disk, also for a directory below the file."""
    (tmp_path / "file").touch()
    for data in (tmp_path / "file", tmp_path / "file" / "data"):
        assert execute([*words, "--data", str(data), "--json"]) == 2
        message = json.loads(capsys.readouterr().out)["error"]["message"]
        assert message == f"the data directory {data} is a file, or is below a file"


@pytest.mark.parametrize("word", ["list", "remove"])
def test_a_word_for_an_option_makes_no_savepoint(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other programs have commands with these names; here they are options."""
    assert execute(["savepoint", word, str(SHOP), "--data", str(tmp_path)]) == 2
    assert f"penstock savepoint APP --{word}" in capsys.readouterr().err


def test_error_of_an_application_controls_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """The text of an exception is shown with its control characters escaped, and with its lines."""
    show(describe(Aborted("a\x1b[31mb\rc\nd")))
    assert "error [aborted] a\\x1b[31mb\\rc\nd\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error", [BlockingIOError(errno.EAGAIN, "unavailable"), RuntimeError("can't start new thread")]
)
def test_a_limit_of_processes_is_no_defect(error: Exception) -> None:
    """The system says EAGAIN for it, and Python names no error of the system for a thread."""
    shown = describe(error)
    assert (shown.code, shown.exit_code) == ("operational", 1)
    assert "ulimit -u" in shown.hint


@pytest.mark.parametrize(
    ("number", "hint"),
    [(errno.EROFS, "writable"), (errno.EACCES, "right"), (errno.EMFILE, "ulimit -n")],
)
def test_an_error_of_the_system_is_no_defect(number: int, hint: str) -> None:
    """It says what the system refuses, where, and the remedy; --debug would show nothing more."""
    shown = describe(OSError(number, os.strerror(number), "/data/run/supervisor.lock"))
    assert (shown.code, shown.exit_code) == ("operational", 1)
    assert shown.message == f"{os.strerror(number)}: /data/run/supervisor.lock"
    assert hint in shown.hint
