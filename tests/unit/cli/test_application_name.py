"""Every command finds its application in the same way: argument, option, environment or file."""

from pathlib import Path

import pytest

from penstock.cli.app_word import split_app
from penstock.cli.commands import COMMANDS
from penstock.cli.main import execute
from penstock.cli.options import UNNAMED, AppOptions, DataOptions
from penstock.cli.requests.call_words import call_of_words
from penstock.deployment.loading import load_app
from penstock.errors import ConfigError, RequestError
from penstock.model.call import Call
from tests.checkout import SHOP

WITHOUT_APP = {
    "new",
    "restore",
    "demo",
    "bench",
    "keys",
    "flow",
    "status",
    "sql",
    "view",
    "host",
    "effects",
    "capture",
}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PENSTOCK_APP", "PENSTOCK_DATA", "PENSTOCK_KEY"):
        monkeypatch.delenv(name, raising=False)


WORDS = {
    "call": ["Item", "i1", "exists"],
    "changes": ["Item"],
    "client": ["--typescript", "web"],
    "import": ["Item", __file__],  # a file that is there
    "export": ["Item", "items.csv"],
    "tail": ["lines"],
    "trace": ["r1"],
    "cancel": ["r1"],
    "retry": ["r1"],
    "discard": ["r1"],
    "erase": ["--list"],
    "history": ["Item", "i1"],
    "savepoint": ["before-sale"],
    "backup": ["backups"],
    "fork": ["copy"],
    "deploy": ["--check"],
    "remove": ["payments"],
    "keys add": ["web", "--scope", "*"],
    "keys list": [],
    "keys revoke": ["web"],
    "flow pause": ["--reason", "new disk"],
    "flow resume": [],
    "flow drain": [],
    "flow show": [],
    "capture list": [],
    "capture pause": ["crm"],
    "capture resume": ["crm"],
    "capture snapshot": ["crm"],
    "capture feed": ["crm"],
    "effects list": [],
    "effects retry": ["r1"],
    "effects discard": ["r1"],
    "effects serve": [],
    "view list": [],
    "view pause": ["reporting"],
    "view resume": ["reporting"],
    "view rebuild": ["reporting"],
    "view remove": ["reporting"],
    "view serve": [],
    "view feed": ["reporting"],
}


@pytest.mark.parametrize(
    "command", [*sorted(COMMANDS.keys() - WITHOUT_APP), *(one for one in WORDS if " " in one)]
)
def test_command_without_an_application_names_the_ways_to_give_it(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a name, each command exits with 2 and a message that helps."""
    words = WORDS.get(command, [])
    if command in ("call", "append"):  # the first word would be the application
        words = ["Item"]
    assert execute([*command.split(), *words]) == 2
    told = capsys.readouterr().err
    assert "name the application" in told
    assert "--app" in told or "--data" in told


@pytest.mark.parametrize("source", ["argument", "option", "environment", "file", "named file"])
def test_each_source_names_the_application(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Argument, option, environment and file mean the same, and give the same data directory."""
    options = AppOptions()
    match source:
        case "argument":
            options = AppOptions(app=[SHOP])
        case "option":
            options = AppOptions(named=SHOP)
        case "environment":
            monkeypatch.setenv("PENSTOCK_APP", SHOP)
        case "file":
            (tmp_path / "penstock.toml").write_text(f'app = "{SHOP}"')
        case _:  # a path in a file counts from the folder of the file
            (tmp_path / "below").mkdir()
            (tmp_path / "below" / "shop.py").symlink_to(Path(SHOP) / "stock.py")
            (tmp_path / "below" / "p.toml").write_text('app = "shop.py:app"')
            found = AppOptions(config=Path("below/p.toml")).settings()
            assert found.app == "below/shop.py:app"
            (tmp_path / "below" / "p.toml").write_text('app = "shop.py:app, stock.module"')
            found = AppOptions(config=Path("below/p.toml")).settings()
            assert found.app == "below/shop.py:app, stock.module"
            return
    application, settings = options.load_unchecked()
    assert (application.name, settings.app) == ("shop", SHOP)
    assert settings.data == Path(".penstock/shop")


def test_command_line_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument takes precedence over the environment; two arguments contradict each other."""
    monkeypatch.setenv("PENSTOCK_APP", "nowhere.py")
    assert AppOptions(app=[SHOP]).settings().app == SHOP
    assert AppOptions(app=[SHOP], named=SHOP).settings().app == SHOP
    with pytest.raises(ConfigError, match="two applications"):
        AppOptions(app=[SHOP], named="other.py").settings()
    assert AppOptions(app=[SHOP, "more.py"]).settings().app == f"{SHOP},more.py"


def test_data_directory_needs_no_application(tmp_path: Path) -> None:
    """With --data, a command that reads no classes does not load the application of the settings."""
    (tmp_path / "penstock.toml").write_text('app = "broken.py"')
    assert AppOptions(data=tmp_path).folder() == tmp_path


def test_what_if_tells_the_new_name_of_its_option(capsys: pytest.CaptureFixture[str]) -> None:
    """`--app` named the other code once: the message says how to write it now."""
    assert execute(["what-if", SHOP, "--app", "new/shop"]) == 2
    assert "--code NEW_APP" in capsys.readouterr().err


CALLS: list[tuple[list[str], Call[object]]] = [
    (["Item", "i1", "add", "5"], Call("Item", "i1", "add", (5,))),
    (["Item", "i1", "create", "price=3"], Call("Item", "i1", "create", (), {"price": 3})),
    (["User", "-", "create"], Call("User", None, "create")),
]


@pytest.mark.parametrize(("words", "call"), CALLS)
@pytest.mark.parametrize("known", [True, False])
def test_words_are_a_call(words: list[str], call: Call[object], *, known: bool) -> None:
    """The same words mean the same call, whether the application is known or not."""
    assert call_of_words(load_app(SHOP) if known else None, words) == call


def test_words_without_an_application_are_json_or_text() -> None:
    """A gateway gets numbers as numbers, and text that is not JSON as text."""
    found = call_of_words(None, ["init_items", "5", "name=a b", '["x"]'])
    assert found == Call("", None, "init_items", (5, ["x"]), {"name": "a b"})
    with pytest.raises(RequestError, match="needs a key"):
        call_of_words(None, ["Item"])


@pytest.mark.parametrize(
    ("words", "configured", "remote", "app"),
    [
        ([SHOP, "Item", "i1"], "", False, SHOP),
        (["shop", "Item", "i1"], "", False, "shop"),
        (["Item", "i1"], SHOP, False, SHOP),
        (["other/shop", "Item", "i1"], SHOP, False, "other/shop"),
        (["shop", "Item", "i1"], "shop", False, "shop"),
        (["examples.shop", "Item", "i1"], SHOP, False, "examples.shop"),
        (["Item", "i1"], "", True, ""),
        ([SHOP, "Item", "i1"], "", True, SHOP),
    ],
)
def test_first_word_is_the_application_or_begins_the_call(
    *, words: list[str], configured: str, remote: bool, app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A configured application may be left out, and a path always names one."""
    monkeypatch.setenv("PENSTOCK_APP", configured)
    options, rest = split_app(
        DataOptions(), words, "penstock call ENTITY KEY METHOD", remote=remote
    )
    assert (options.settings().app, rest) == (app, ["Item", "i1"])


@pytest.mark.parametrize("configured", ["", SHOP])
@pytest.mark.parametrize("command", [["call"], ["call", "--url", "http://127.0.0.1:9"]])
def test_a_class_with_its_method_is_not_the_application(
    configured: str,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The message names both readings, with and without a configured application."""
    monkeypatch.setenv("PENSTOCK_APP", configured)
    assert execute([*command, "Item.create", "i1", "price=3"]) == 2
    message = capsys.readouterr().err
    assert "write Item KEY create" in message
    assert "there is no package Item" in message


def test_message_for_a_missing_application_is_complete() -> None:
    """The message names every way to give the application."""
    for way in ("APP", "--app", "PENSTOCK_APP", "penstock.toml"):
        assert way in UNNAMED


@pytest.mark.parametrize(
    "words", [["history", "app.py", "Item", "i1"], ["changes", "app.py", "Item"]]
)
def test_application_in_the_place_of_a_class(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the form of the command, and is not about the last word."""
    assert execute(words) == 2
    assert "app.py cannot be the name of a class" in capsys.readouterr().err
