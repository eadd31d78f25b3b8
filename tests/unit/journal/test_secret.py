"""The journal's secret: chance that every run of a request repeats, and no caller can compute."""

from contextlib import closing
from pathlib import Path

import pytest

from penstock.base.ids import EntityKey
from penstock.cli.main import execute
from penstock.history.backup import Backups
from penstock.history.restore import fork, restore
from penstock.journal.delta import DeltaJournal
from penstock.model.call import Call as EntityCall
from penstock.runtime.local.runtime import LocalRuntime
from tests.history import Call, journal_of
from tests.memory_journal import MemoryJournal
from tests.unit.journal.random_app import app

LOTTERY = str(Path(__file__).parent / "random_app.py")
CALLS: list[list[Call]] = [
    [("Ticket", None, "create", {}), ("Ticket", "a", "create", {})],
    [("Ticket", "a", "draw", [])],
    [("Ticket", "a", "draw", [])],
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    journal_of(LOTTERY, tmp_path / "data", CALLS)
    return tmp_path / "data"


def secret_of(data: Path) -> bytes:
    with closing(DeltaJournal(data / "journal", "lottery")) as journal:
        return journal.secret


def drawn(secret: bytes) -> tuple[bytes, dict[EntityKey, bytes]]:
    """Return the reply to one request under one id, and the state behind it."""
    runtime = LocalRuntime(app, secret=secret)
    runtime.submit(EntityCall("Ticket", "a", "create", request_id="r0"))
    return runtime.submit(EntityCall("Ticket", "a", "draw", request_id="r1")).data, dict(
        runtime.state
    )


def test_only_the_secret_tells_what_chance_gives() -> None:
    """The same request under the same id draws alike with one secret, otherwise with another."""
    assert drawn(b"one") == drawn(b"one")
    (reply, state), (other_reply, other_state) = drawn(b"one"), drawn(b"two")
    assert reply != other_reply
    assert state != other_state


def test_each_journal_draws_its_own(tmp_path: Path) -> None:
    """No two journals have one secret, and reopening one finds the same."""
    secrets = {secret_of(tmp_path / name) for name in "ab"}
    secrets |= {MemoryJournal().secret, secret_of(tmp_path / "a")}
    assert len(secrets) == 3
    assert {len(secret) for secret in secrets} == {32}


def test_looking_back_draws_what_was_drawn(data: Path, tmp_path: Path) -> None:
    """Replay agrees with the journal, and with a fork and a restored backup of it."""
    Backups(tmp_path / "backups").make(data, "lottery")
    restore(tmp_path / "backups", tmp_path / "restored", None)
    fork(data, "lottery", tmp_path / "forked", 1)
    for one in (data, tmp_path / "restored", tmp_path / "forked"):
        assert secret_of(one) == secret_of(data)
        assert execute(["replay", LOTTERY, "--data", str(one)]) == 0


def test_trace_and_what_if_draw_what_was_drawn(
    data: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A trace is as recorded, and what-if without a change shows no difference, also when kept."""
    assert execute(["trace", "r2", LOTTERY, "--data", str(data), "--json"]) == 0
    assert '"as_recorded":true' in capsys.readouterr().out
    kept = str(tmp_path / "kept")
    assert (
        execute(["what-if", LOTTERY, "--data", str(data), "--without", "r3", "--keep", kept]) == 0
    )
    assert execute(["replay", LOTTERY, "--data", kept]) == 0


def test_secret_is_told_nowhere(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither the Delta table's own data nor a status says it."""
    secret = secret_of(data).hex()
    assert execute(["explain", LOTTERY]) == 0
    assert execute(["verify", LOTTERY, "--data", str(data)]) == 0
    assert secret not in "".join(capsys.readouterr())
    log = (data / "journal" / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    assert [secret in line for line in log] == [True, *[False] * (len(log) - 1)]
