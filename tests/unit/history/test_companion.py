"""The companion of a replay: a second process runs every second turn, and no finding depends on it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.base.ids import Epoch
from penstock.cli.main import execute
from penstock.engine.execute import Limits
from penstock.history import replay as replays
from penstock.history.replay import SpanReplay, Turns, is_worth_sharing
from penstock.journal.api import Commit, Part, PartKind
from penstock.journal.delta import DeltaJournal
from tests.history import Call, journal_of
from tests.unit.history.till_app import LAST_WORDS

pytestmark = pytest.mark.long

TILL = str(Path(__file__).parent / "till_app.py")
CREATED: list[Call] = [("Till", "a", "create", ()), ("Till", "b", "create", ())]
EPOCHS = 8
Replay = Callable[[], tuple[int, Any]]


def adding(method: str = "add", at: int = -1) -> list[list[Call]]:
    """Give epochs that add to both tills; one of them calls another method first."""
    epochs: list[list[Call]] = [CREATED]
    for number in range(1, EPOCHS):
        calls: list[Call] = [("Till", name, "add", (number,)) for name in ("a", "b")]
        epochs.append([("Till", "a", method, ()), *calls] if number == at else calls)
    return epochs


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let each epoch be a turn, and give the list of the epochs that this process has taken as proven, by length."""
    epochs: list[int] = []
    take = SpanReplay.take

    def noted(span: SpanReplay, changes: Any) -> None:
        epochs.append(len(changes))
        take(span, changes)

    monkeypatch.setattr(replays, "TURN_REQUESTS", 1)
    monkeypatch.setattr(replays, "SHARED_MIN", 1)
    monkeypatch.setattr(replays, "_has_room", lambda: True)
    monkeypatch.setattr(SpanReplay, "take", noted)
    return epochs


@pytest.fixture
def replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Replay:
    """Give a function that replays the journal."""

    def run() -> tuple[int, Any]:
        code = execute(["replay", TILL, "--data", str(tmp_path), "--json"])
        found = msgspec.json.decode(capsys.readouterr().out or b"null")
        if found:
            del found["spent_s"]
        return code, found

    return run


def alone(replayed: Replay, monkeypatch: pytest.MonkeyPatch) -> tuple[int, Any]:
    """Replay without a companion."""
    with monkeypatch.context() as patch:
        patch.setattr(replays, "SHARED_MIN", 1_000_000)
        return replayed()


def commit_of(epoch: int, requests: int) -> Commit:
    """Give the commit of an epoch with so many requests, in two parts."""
    sizes = (requests // 2, requests - requests // 2)
    parts = [Part(PartKind.TRANSACTIONS, f"{size}", size, 0, "") for size in sizes]
    return Commit(epoch, {}, (*parts, Part(PartKind.CHANGES, "c", 9, 0, "")), 0)  # type: ignore[arg-type]


def test_turns_end_with_enough_requests() -> None:
    """Small epochs share a turn, and the turns belong to both processes in alternation."""
    half, whole = replays.TURN_REQUESTS // 2, replays.TURN_REQUESTS
    divided = Turns()
    sizes = [half, half, half, half, whole, 3 * whole, 1]
    commits = [commit_of(epoch, size) for epoch, size in enumerate(sizes)]
    second = [divided.are_second(commit) for commit in commits]
    assert second == [False, False, True, True, False, True, False]


def test_short_spans_are_not_shared() -> None:
    """The commits are read only until there are enough requests."""
    commits = iter([commit_of(0, replays.SHARED_MIN - 1), commit_of(1, 1), commit_of(2, 1)])
    assert is_worth_sharing(commits)
    assert next(commits).epoch == 2
    assert not is_worth_sharing([commit_of(0, replays.SHARED_MIN - 1)])


def test_shared_replay_finds_the_same(
    tmp_path: Path, taken: list[int], replayed: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both processes run half of the epochs, and the counts are those of one process."""
    tight = Limits(reply_bytes=64)
    epochs = adding()
    epochs[3] = [("Till", "x" * 80, "create", ()), *epochs[3]]
    journal_of(TILL, tmp_path, epochs, limits=tight)
    code, found = replayed()
    assert (code, found["divergence"]) == (0, None)
    assert found["skipped"] == 1
    assert len(taken) == EPOCHS // 2
    assert (code, found) == alone(replayed, monkeypatch)


@pytest.mark.parametrize("epoch", [3, 4])
def test_difference_is_shown_as_by_one_process(
    tmp_path: Path,
    taken: list[int],
    replayed: Replay,
    monkeypatch: pytest.MonkeyPatch,
    epoch: int,
) -> None:
    """The first difference, its cause and all counts are the same, whichever process meets it."""
    journal_of(TILL, tmp_path, adding("add_as_the_environment_says", epoch))
    monkeypatch.setenv("TILL_AMOUNT", "5")
    code, found = replayed()
    assert (code, found["divergence"]["epoch"]) == (1, epoch)
    assert found["divergence"]["verdict"]["causes"] == ["environment"]
    assert len(taken) == epoch // 2
    assert (code, found) == alone(replayed, monkeypatch)


@pytest.mark.parametrize("number", [3, 4])
def test_damaged_part_is_the_same_error(
    tmp_path: Path, taken: list[int], capsys: pytest.CaptureFixture[str], number: int
) -> None:
    """A damaged file stops the replay at its epoch, whichever process reads it."""
    journal_of(TILL, tmp_path, adding())
    journal = DeltaJournal(tmp_path / "journal", "till")
    (commit,) = journal.commits(Epoch(number - 1), Epoch(number))
    journal.close()
    (written,) = commit.parts_of(PartKind.TRANSACTIONS)
    part = tmp_path / "journal" / written.path
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    assert execute(["replay", TILL, "--data", str(tmp_path)]) == 1
    assert part.name in capsys.readouterr().err
    assert len(taken) == number // 2


@pytest.mark.parametrize(
    "method",
    ["end_other_processes", "wait_in_other_processes", "close_files_of_other_processes"],
)
def test_companion_that_is_lost_changes_nothing(
    tmp_path: Path,
    taken: list[int],
    replayed: Replay,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
) -> None:
    """If a handler ends or stops the companion, or closes its files, the replay runs all further epochs itself."""
    noted = SpanReplay.take

    def impatient(span: SpanReplay, changes: Any) -> None:
        noted(span, changes)
        monkeypatch.setattr(replays, "_IDLE_S", 0.2)  # it has done what it does

    monkeypatch.setattr(replays, "_IDLE_S", 60.0)
    monkeypatch.setattr(SpanReplay, "take", impatient)
    journal_of(TILL, tmp_path, adding(method, 3))
    code, found = replayed()
    assert (code, found["divergence"]) == (0, None)
    assert len(taken) == 1
    assert (code, found) == alone(replayed, monkeypatch)


def test_handlers_in_a_companion_write_to_standard_error(
    tmp_path: Path, taken: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    """The output of handlers is not part of the answer, in both processes."""
    journal_of(TILL, tmp_path, adding("speak", 3))
    assert execute(["replay", TILL, "--data", str(tmp_path), "--json"]) == 0
    told = capfd.readouterr()
    assert LAST_WORDS in told.err
    assert LAST_WORDS not in told.out
    assert len(taken) == EPOCHS // 2
