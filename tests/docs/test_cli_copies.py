"""Savepoints, backups, restored and forked applications, and verifying, as a person uses them."""

import json
import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.cli.main import execute
from tests.checkout import SHOP, TOP
from tests.history import Call, journal_of

PAGES = {
    "HISTORY.md": ("Savepoints", "Backup and restore", "Forks", "Verify"),
    "operations/directory.md": ("Backup",),
}
EPOCHS: list[list[Call]] = [
    [("Item", "i1", "create", {"price": 3, "stock": 5}), ("Item", "i2", "create", {"price": 4})],
    [("Item", "i1", "add", [2])],
    [("Item", "i2", "delete", [])],
]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill the default data directory of a shop with three epochs, and run in the folder above."""
    monkeypatch.chdir(tmp_path)
    journal_of(SHOP, tmp_path / ".penstock" / "shop", EPOCHS)


def commands_of(page: str, sections: tuple[str, ...]) -> list[str]:
    text = (TOP / "docs" / page).read_text()
    found: list[str] = []
    for one in sections:
        section = text.partition(f"## {one}\n")[2].partition("\n## ")[0]
        found += re.findall(r"^ {4}(penstock .*)$", section, re.MULTILINE)
        for block in re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL):
            found += block.splitlines()
    return found


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.usefixtures("data")
def test_commands_of_the_page_run(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The commands in the sections work in their order."""
    commands = commands_of(page, PAGES[page])
    assert len(commands) == {"HISTORY.md": 16, "operations/directory.md": 3}[page]
    # A savepoint is removed at the end of its own section, and used in those that follow.
    commands = sorted(commands, key=lambda command: "--remove" in command)
    now = datetime.now(UTC).isoformat()  # the page's own time is before this journal's first epoch
    for number, command in enumerate(commands):
        text = command.replace("2026-11-21T08:30:00+01:00", now).replace("/mnt/", "")
        text = text.replace("/tmp/restored", "restored").replace(" APP", f" {SHOP}")
        for place in ("/var/lib/shop", "/tmp/shop-copy"):
            text = text.replace(place, f"new{number}")
        if "to-time" in command:
            assert execute(["backup", "backups/shop", SHOP]) == 0  # else the time is after it
        assert execute(shlex.split(text)[1:]) == 0, (command, capsys.readouterr())


@pytest.mark.usefixtures("data")
def test_restored_application_is_told_with_what_is_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A person reads epoch, directory, how many requests are not in it, and how to run it."""
    assert execute(["backup", "b", SHOP]) == 0
    assert "backup of shop at epoch 2: 12 files" in capsys.readouterr().out
    assert execute(["restore", "b", "new", "--to-epoch", "0"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("shop, restored at epoch 0 (2")
    assert told[1] == "2 later requests are not part of it: new/dropped-requests.jsonl"
    assert told[2] == "run it: penstock run APP --data new"
    assert execute(["fork", "forked", SHOP, "--at", "1", "--json"]) == 0
    forked = json.loads(capsys.readouterr().out)
    committed = datetime.fromisoformat(forked.pop("time"))
    assert committed == datetime.fromtimestamp(0, UTC) + timedelta(microseconds=forked["time_us"])
    assert forked == {
        "app": "shop",
        "data": "forked",
        "epoch": 1,
        "time_us": pytest.approx(datetime.now(UTC).timestamp() * 1e6, abs=6e8),
        "waiting": 0,
        "dropped": 1,
        "held": [],
        "held_effects": [],
        "held_captures": [],
    }


@pytest.mark.usefixtures("data")
def test_programs_get_backups_and_savepoints_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Keys are stable, and hold the facts that a script needs."""
    assert execute(["savepoint", "now", SHOP, "--note", "a note", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert execute(["savepoint", SHOP, "--list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [made]
    assert (made["name"], made["epoch"], made["note"]) == ("now", 2, "a note")
    assert execute(["backup", "b", SHOP, "--json"]) == 0
    backup = json.loads(capsys.readouterr().out)
    assert (backup["files"], backup["copied_files"]) == (13, 13)
    assert execute(["backup", "b", "--list", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed | {"copied_files": 13, "copied_bytes": backup["copied_bytes"]} == backup


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["savepoint", SHOP], "write penstock savepoint NAME APP"),
        (["savepoint", "a", SHOP, "--list"], "write penstock savepoint NAME APP"),
        (["savepoint", "1", SHOP], "cannot name a savepoint"),
        (["savepoint", SHOP, "--remove", "none"], "has no savepoint none"),
        (["backup", "b"], "name the application"),
        (["restore", "none", "new"], "there is no backup in none"),
        (["restore", "b", "new", "--to-epoch", "1", "--to", "a"], "give only one of"),
        (["restore", "b", "new", "--to-time", "noon"], "noon"),
        (["fork", "new", SHOP, "--at", "none"], "has no savepoint none"),
        (["fork", "new", SHOP, "--at", "9"], "there is no epoch 9"),
        (["fork", ".", SHOP], "is not empty"),
    ],
)
@pytest.mark.usefixtures("data")
def test_mistakes_are_named_and_leave_nothing(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each error names the next step, and no directory appears."""
    assert execute(words) == 2
    assert told in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [".penstock"]
