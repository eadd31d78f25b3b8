"""The pages' commands on traces, histories of entities, snapshots and retention."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from penstock.cli.main import execute
from tests.checkout import SHOP, TOP
from tests.docs.test_pages import snippets
from tests.history import Call, journal_of

PAGE = (TOP / "docs" / "HISTORY.md").read_text()
SECTIONS = ("Trace", "Snapshots", "Retention")
MEANT = {"REQUEST_ID": "r2", "ENTITY": "Item", "KEY": "i1", "APP": SHOP, "100": "0", "200": "1"}
EPOCHS: list[list[Call]] = [
    [("Item", "i1", "create", {"price": 3, "stock": 5}), ("User", "u1", "create", {"credit": 9})],
    [("Item", "i1", "subtract", [2]), ("User", "u1", "pay", [4])],
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the data directory of a shop after two epochs."""
    data = tmp_path_factory.mktemp("shop")
    journal_of(SHOP, data, EPOCHS)
    return data


def commands_of(section: str) -> list[str]:
    """Return the commands of a section of the page."""
    text = PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"^    (penstock .+)$", text, re.MULTILINE)


def test_sections_have_commands() -> None:
    """A section that has lost its commands would be tested by nothing."""
    assert [len(commands_of(one)) for one in SECTIONS] == [5, 2, 1]


@pytest.mark.parametrize("command", [one for name in SECTIONS for one in commands_of(name)])
def test_command_of_the_page_works(
    data: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command has the effect that the page describes, and --json is JSON."""
    words = [MEANT.get(word, word) for word in shlex.split(command)[1:]]
    if "--last" in words:
        words[words.index("--last") + 1] = "100"
    assert execute([*words, "--data", str(data)]) == 0
    out = capsys.readouterr().out
    if "--json" in words:
        json.loads(out)
    elif words[0] == "trace":
        assert "Item/i1.subtract(2)" in out
        assert "r2" in out
    elif words[0] == "history":
        assert "r2" in out
    else:
        assert "the journal begins with epoch 0" in out


README = (TOP / "README.md").read_text()
PAST = re.search(r"## Look into the past\n.+?```console\n(.+?)```", README, re.DOTALL)
CHANGE = re.search(r"## Change an application\n.+?```console\n(.+?)```", README, re.DOTALL)
KIOSK: list[list[Call]] = [
    [
        ("Item", "tea", "create", {"price": 3, "stock": 10}),
        ("User", "ada", "create", {"credit": 9}),
    ],
    [("User", "ada", "buy", ["tea", 2])],
]


def test_commands_of_the_readme_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The README's commands on the past work, in the directory where its application ran."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kiosk.py").write_text(snippets("README.md")[0])
    journal_of("kiosk.py", Path(".penstock/kiosk"), KIOSK)
    assert PAST is not None
    commands = PAST[1].splitlines()
    assert len(commands) == 7
    told = {}
    for command in commands:
        words = [{"tea-for-ada": "r2"}.get(word, word) for word in shlex.split(command)[1:]]
        assert execute(words) == 0, command
        told[words[0]] = capsys.readouterr().out
    assert "User/ada.buy(Item/tea, 2)" in told["trace"]
    assert "r2" in told["history"]
    assert "8" in told["sql"]
    assert "every entity is as recorded" in told["replay"]
    assert "Item/tea" in told["what-if"]


def test_commands_on_a_change_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the README's change of the kiosk, its commands say what it says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "kiosk", raising=False)
    kiosk = snippets("README.md")[0]
    (tmp_path / "kiosk.py").write_text(kiosk)
    journal_of("kiosk.py", Path(".penstock/kiosk"), KIOSK, deploys=True)
    changed = kiosk.replace("    stock: int = 0\n", '    stock: int = 0\n    label: str = "new"\n')
    assert "label" in changed
    (tmp_path / "kiosk.py").write_text(changed)
    monkeypatch.delitem(sys.modules, "kiosk")
    assert CHANGE is not None
    told = {}
    for command in CHANGE[1].splitlines():
        words = shlex.split(command)[1:]
        told[words[0]] = (execute(words), capsys.readouterr().out)
    assert told["deploy"][0] == 0, told["deploy"][1]
    assert "label" in told["deploy"][1]
    assert told["apps"][0] == 0
    assert re.search(r"tea +│ +new", told["sql"][1]), told["sql"][1]


def test_snapshot_settings_of_the_page_exist() -> None:
    """The page's section on retention names settings that exist."""
    settings = (TOP / "docs" / "SETTINGS.md").read_text()
    named = set(re.findall(r"`(history\.[a-z_]+)`", PAGE))
    assert named
    assert {name for name in named if f"| `{name}` |" not in settings} == set()
