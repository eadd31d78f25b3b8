"""With `--json`, an error is one JSON object on standard output; exit codes are the same for people."""

import errno
import json
from pathlib import Path

import pytest

from penstock.cli import error_output
from penstock.cli.commands import COMMANDS
from penstock.cli.main import application, execute
from penstock.errors import BY_CODE, ConfigError, DefinitionError, UserError
from tests.checkout import SHOP

ERRORS = [
    (["explain", "nowhere/app.py"], "config"),
    (["explain"], "config"),
    (["explain", SHOP, "--nonsense"], "usage"),
    (["nonsense"], "usage"),
    (["trace"], "usage"),
    (["trace", "r1", SHOP], "config"),
    (["history", "Itm", "i1", SHOP], "request"),
    (["call", SHOP, "Itm", "i1", "exists"], "request"),
    (["sql", "SELECT 1"], "config"),
    (["verify", SHOP, "--set", "pol_ms=3"], "config"),
]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_APP", raising=False)


@pytest.mark.parametrize(("words", "code"), ERRORS)
def test_error_is_one_object(
    words: list[str], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output has the error alone, with the exit code that the process ends with."""
    exit_code = execute([*words, "--json"])
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert list(found) == ["error"]
    assert list(found["error"]) == ["code", "message", "hint", "exit_code"]
    assert (found["error"]["code"], found["error"]["exit_code"]) == (code, exit_code)
    assert found["error"]["hint"]
    assert printed.err == ""
    assert execute(words) == exit_code == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_command_line_that_cannot_be_read_exits_with_2(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command refuses an option that it does not have, for people and for programs."""
    words = [command, "--nonsense"]
    assert execute(words) == 2
    told = capsys.readouterr()
    assert (told.out, "nonsense" in told.err) == ("", True)
    assert execute([*words, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert "nonsense" in error["message"]
    assert error["exit_code"] == 2


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_exit_code_says_who_must_act(code: str) -> None:
    """An error that the caller can correct has exit code 2, every other error 1."""
    kind = BY_CODE[code]
    error = DefinitionError(["a"]) if kind is DefinitionError else kind("a")
    expected = 2 if issubclass(kind, UserError) else 1
    assert error_output.describe(error).exit_code == expected


def test_defects_and_interruptions_have_exit_codes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An exception of another class exits with 1, Ctrl-C with 130, also as JSON."""
    for error, code in ((RuntimeError("a defect"), 1), (KeyboardInterrupt(), 130)):

        def fail(*_: object, error: BaseException = error, **__: object) -> None:
            raise error

        monkeypatch.setattr(type(application), "__call__", fail)
        assert execute(["status"]) == code
        capsys.readouterr()
        assert execute(["status", "--json"]) == code
        assert json.loads(capsys.readouterr().out)["error"]["exit_code"] == code


def test_full_disk_is_no_defect() -> None:
    """The message of a write that no layer translates says what, where and what next."""
    told = error_output.describe(OSError(errno.ENOSPC, "No space left on device", "data/run/x"))
    assert told.message == "No space left on device (data/run/x)"
    assert (told.code, told.exit_code) == ("operational", 1)
    unnamed = error_output.describe(OSError(errno.ENOSPC, "No space left on device"))
    assert "data directory" in unnamed.message
    assert "Make space" in unnamed.hint


def test_missing_package_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command that needs a package of the extra `server` says what to install."""

    def fail(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("no", name="pyarrow")

    monkeypatch.setattr(type(application), "__call__", fail)
    assert execute(["sql", "SELECT 1"]) == 2
    assert "pip install 'penstock[server]'" in capsys.readouterr().err


def test_every_exit_code_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """`penstock --help` ends with the meaning of each exit code."""
    assert execute(["--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    for code, meaning in error_output.EXIT_CODES.items():
        assert f"{code} {meaning}" in told


def test_user_errors_are_described_for_programs() -> None:
    """The description has the code of the error and its hint."""
    found = error_output.describe(ConfigError("wrong"))
    assert (found.code, found.message) == ("config", "wrong")
    assert found.hint == error_output.ADVICE["config"]
