"""Replay: a journal is run again and compared; the first difference is shown with its place."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.cli.main import execute
from penstock.engine.execute import Limits
from penstock.journal.delta import DeltaJournal
from tests.checkout import SHOP
from tests.history import Call, journal_of

pytestmark = pytest.mark.long

WAYWARD = str(Path(__file__).parent / "nondeterministic_app.py")
HONEST_LINE = "    def honest(self, amount: int) -> int:"
SHOPPING: list[list[Call]] = [
    [
        ("Item", "i1", "create", {"price": 3, "stock": 10}),
        ("User", "u1", "create", {"credit": 20}),
    ],
    [
        ("Item", "i1", "add", (5,)),
        ("Item", "i1", "subtract", (2,)),
        ("Item", "absent", "add", (1,)),
    ],
    [("User", "u1", "pay", (6,)), ("Item", "i1", "delete", ())],
]
HONEST: list[list[Call]] = [
    [("Clerk", "a", "create", ()), ("Clerk", "b", "create", ())],
    [
        ("Clerk", "a", "honest", (2,)),
        ("Clerk", "b", "honest", (1,)),
        ("Clerk", "a", "honest", (3,)),
    ],
]


def replayed(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    code = execute(["replay", *arguments, "--json"])
    return code, msgspec.json.decode(capsys.readouterr().out)


def test_faithful_journal_replays_without_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Creations, changes, failures and deletions come out as they were recorded."""
    journal_of(SHOP, tmp_path, SHOPPING)
    code, found = replayed(SHOP, "--data", str(tmp_path), capsys=capsys)
    assert code == 0
    assert found["divergence"] is None
    assert (found["first"], found["last"], found["requests"]) == (0, 2, 7)


def test_part_of_a_journal_begins_with_the_state_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A range of epochs is replayed on the state after all epochs before it."""
    journal_of(SHOP, tmp_path, SHOPPING)
    data = ("--data", str(tmp_path))
    code, found = replayed(SHOP, *data, "--from", "1", "--to", "1", capsys=capsys)
    assert code == 0
    assert (found["first"], found["last"], found["requests"]) == (1, 1, 3)


@pytest.mark.usefixtures("no_experiments")
def test_first_difference_names_attribute_request_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An entity that differs from the journal is shown with the request that wrote it last."""
    journal_of(WAYWARD, tmp_path, HONEST, damage={"Clerk/a": {"note": "", "count": 7}})
    code, found = replayed(WAYWARD, "--data", str(tmp_path), "--from", "1", capsys=capsys)
    assert code == 1
    first = found["divergence"]
    assert (first["epoch"], first["lsn"], first["request_id"]) == (1, 2, "r2")
    assert first["call"] == "Clerk/a.honest(2)"
    lines = Path(WAYWARD).read_text().splitlines()
    assert first["handler"].endswith(f"nondeterministic_app.py:{1 + lines.index(HONEST_LINE)}")
    assert {"place": "reply", "attribute": "", "recorded": 2, "replayed": 9} in first["findings"]


@pytest.mark.usefixtures("no_experiments")
def test_replay_goes_on_after_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All epochs that differ are counted, and each is compared over the recorded state before it."""
    more: list[list[Call]] = [[("Clerk", "b", "honest", (4,))] for _ in range(4)]
    journal_of(WAYWARD, tmp_path, HONEST + more, damage={"Clerk/b": {"note": "", "count": 7}})
    code, found = replayed(WAYWARD, "--data", str(tmp_path), capsys=capsys)
    assert code == 1
    assert (found["last"], found["differing"]) == (5, 6)
    assert [each["epoch"] for each in found["divergences"]] == [0, 1, 2]
    assert found["divergence"] == found["divergences"][0]
    assert execute(["replay", WAYWARD, "--data", str(tmp_path)]) == 1
    assert "6 epochs differ from the journal; the first 3 are above" in capsys.readouterr().out


def test_entity_that_differs_alone_is_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Replies that agree hide no entity that does not; deterministic code is said to have changed."""
    journal_of(WAYWARD, tmp_path, HONEST, damage={"Clerk/b": {"note": "", "count": 7}})
    assert execute(["replay", WAYWARD, "--data", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "epoch 0 differs" in out
    assert "r1 (position 1 of the log)" in out
    assert "Clerk/b" in out
    assert "cause: code" in out


def test_request_that_exceeded_a_limit_is_taken_as_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A request that depended on the machine is not run again, and the count says so."""
    tight = Limits(reply_bytes=64)
    name = "i" * 50
    created: Call = ("Item", name, "create", {"price": 3, "stock": 10})
    calls: list[Call] = [created, ("Item", name, "add", (5,))]
    journal_of(SHOP, tmp_path, [calls], limits=tight)
    code, found = replayed(SHOP, "--data", str(tmp_path), capsys=capsys)
    assert code == 0
    assert (found["requests"], found["skipped"]) == (1, 1)


def test_debugger_stops_in_the_handler_with_the_state_of_the_moment(tmp_path: Path) -> None:
    """`--break` stops at the first line of the request's handler, before its first change."""
    journal_of(SHOP, tmp_path, SHOPPING)
    command = [sys.executable, "-m", "penstock", "replay", SHOP, "--data", str(tmp_path)]
    done = subprocess.run(
        [*command, "--break", "r3"],
        input="p self.stock, amount\np __name__\nc\n",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "stock.py" in done.stdout
    assert "subtract" in done.stdout
    assert "(15, 2)" in done.stdout
    assert "updated to: 13" in done.stdout


@pytest.mark.parametrize(
    "words", [("--break", "r99"), ("--from", "3"), ("--from", "2", "--to", "1")]
)
def test_what_is_not_in_the_journal_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """An unknown request and a range that does not exist are the caller's errors, and named."""
    journal_of(SHOP, tmp_path, SHOPPING)
    assert execute(["replay", SHOP, "--data", str(tmp_path), *words]) == 2
    err = capsys.readouterr().err
    assert "r99" in err or "it holds epochs 0 to 2" in err


def test_directory_without_a_journal_is_refused_and_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asking for history creates none; an empty journal has none either."""
    assert execute(["replay", SHOP, "--data", str(tmp_path)]) == 2
    assert "there is no journal" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    DeltaJournal(tmp_path / "journal", "shop").close()
    assert execute(["replay", SHOP, "--data", str(tmp_path)]) == 2
    assert "has no epoch yet" in capsys.readouterr().err


def test_damaged_part_is_an_integrity_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed byte of the journal is damage, and not a difference."""
    journal_of(SHOP, tmp_path, SHOPPING)
    part = sorted((tmp_path / "journal" / "kind=changes").iterdir())[0]
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    assert execute(["replay", SHOP, "--data", str(tmp_path)]) == 1
    assert "[corrupt]" in capsys.readouterr().err
