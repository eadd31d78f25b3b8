"""The page on the command line is true: its commands run, and its tables are those of the code."""

import json
import re
import shlex
from collections.abc import Iterator

import pytest

from penstock.cli.error_output import EXIT_CODES
from penstock.cli.main import execute
from tests.checkout import TOP
from tests.docs.test_pages import snippets
from tests.gateway_thread import RunningGateway

PAGE = (TOP / "docs" / "COMMANDS.md").read_text()
WRITTEN = "http://127.0.0.1:8000"
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LOCAL, REMOTE = (block.splitlines() for block in CONSOLE.findall(PAGE)[:2])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """Run the README's application in `.penstock` of its folder."""
    folder = tmp_path_factory.mktemp("commands")
    program = folder / "commands_kiosk.py"  # a module of this process, whose name stays taken
    program.write_text(snippets("README.md")[0])
    (folder / "penstock.toml").write_text('app = "commands_kiosk.py"')
    with RunningGateway(str(program), folder / ".penstock" / "kiosk") as gateway:
        yield gateway


@pytest.fixture
def running(served: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> RunningGateway:
    """Enter the folder of the application."""
    monkeypatch.chdir(served.config.data.parent.parent)
    monkeypatch.delenv("PENSTOCK_APP", raising=False)
    monkeypatch.delenv("PENSTOCK_KEY", raising=False)
    return served


def test_exit_codes_of_the_page_are_those_of_the_commands() -> None:
    """The table has each exit code with its meaning."""
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", PAGE, re.MULTILINE)
    assert {int(code): meaning for code, meaning in rows} == EXIT_CODES


def test_commands_of_the_page_run(
    running: RunningGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the application in penstock.toml no command names it; with a URL no command reads files."""
    for command in LOCAL:
        words = [{"tea-for-ada": "buy-1"}.get(word, word) for word in shlex.split(command)[1:]]
        words += ["--request-id", "buy-1", "--timeout", "120"] if words[0] == "call" else []
        assert execute(words) == 0, command
        assert capsys.readouterr().out
    for command in REMOTE:
        words = [
            {"tea-for-ada": "buy-1", WRITTEN: running.url}.get(word, word)
            for word in shlex.split(command)[1:]
        ]
        expected = (
            1 if words[0] in ("sql", "status", "changes") else 0
        )  # neither a view nor a driver runs
        words += ["--timeout", "120"] if words[0] == "call" else []
        assert execute([*words, "--json"]) == expected, command
        answer = json.loads(capsys.readouterr().out)
        match words[0]:
            case "status":
                assert (answer["app"], answer["log_end"], answer["data"]) == (
                    "kiosk",
                    1,
                    running.url,
                )
            case "sql" | "changes":
                assert answer["error"]["code"] == "view-unavailable"
            case "call":
                assert answer == 6
            case "explain":
                assert [operator["name"] for operator in answer["operators"]] == ["Item", "User"]
            case "trace":
                assert answer["request_id"] == "buy-1"
            case _:
                assert [change["kind"] for change in answer["changes"]] == ["create", "update"]


def test_refusals_at_a_url_have_the_same_exit_codes(
    running: RunningGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reply that is an error ends with 3, a wrong call with 2, and a gateway that is not there with 1."""
    remote = ("--url", running.url)
    for words, code, name in (
        (["Item", "absent", "take", "1"], 3, "no-such-entity"),
        (["Item", "absent", "tke", "1"], 2, "request"),
    ):
        for spec in ([], ["--config", "/dev/null"]):  # with the application, and without
            assert execute(["call", *words, *remote, *spec, "--timeout", "120", "--json"]) == code
            assert json.loads(capsys.readouterr().out)["error"]["code"] == name
    nowhere = ("--url", "http://127.0.0.1:9")
    assert execute(["status", *nowhere]) == 1
    assert "[unreachable]" in capsys.readouterr().err


def test_key_comes_from_the_environment(
    running: RunningGateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """PENSTOCK_KEY is the key of every command with --url, and it is not a setting."""
    words = ["keys", "add", "web", "--scope", "call:Item.exists"]
    assert execute([*words, "--json"]) == 0
    secret = json.loads(capsys.readouterr().out)["secret"]
    asked = ["call", "Item", "honey", "exists", "--url", running.url, "--timeout", "120", "--json"]
    monkeypatch.setenv("PENSTOCK_KEY", secret + "0")
    while execute(asked) == 0:  # the gateway applies a new key within a second
        capsys.readouterr()
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "unauthenticated"
    monkeypatch.setenv("PENSTOCK_KEY", secret)
    assert execute(asked) == 0
    capsys.readouterr()
    assert execute(["status", "--url", running.url, "--json"]) == 2
    assert '"forbidden"' in capsys.readouterr().out
