"""The file of pauses: its effect follows from its record, and damage is never taken for a resume."""

from pathlib import Path

import pytest

from penstock.errors import Corrupt, RequestError
from penstock.files.layout import PAUSES
from penstock.gateway.flow.admission import watched_pauses
from penstock.orders import pauses
from penstock.orders.pauses import PauseFile, Pauses


def targets(data: Path) -> list[str]:
    return list(PauseFile(data).pauses().in_force)


def test_pause_covers_its_target_only(tmp_path: Path) -> None:
    """A class covers its methods, a method itself, and `*` everything."""
    file = PauseFile(tmp_path)
    for target in ("Order", "Item.add", "transfer"):
        file.pause(target, "ada", "why", 1)
    found = file.pauses()
    covered = [("Order", "checkout"), ("Order", "create"), ("Item", "add"), ("", "transfer")]
    free = [("Item", "take"), ("User", "add"), ("", "Order"), ("", "pay")]
    assert all(found.pause_of(*one) for one in covered)
    assert not any(found.pause_of(*one) for one in free if one != ("", "Order"))
    file.pause("*", "ada", "why", 2)
    assert all(file.pauses().pause_of(*one) for one in [*covered, *free])


def test_resume_ends_exactly_one_pause(tmp_path: Path) -> None:
    """Other pauses stay in force, and what is not paused cannot be resumed."""
    file = PauseFile(tmp_path)
    file.pause("*", "ada", "drain", 1)
    file.pause("Order", "ada", "prices", 2)
    file.resume("*", "bob", "done", 3)
    assert targets(tmp_path) == ["Order"]
    with pytest.raises(RequestError, match="everything is not paused; paused: Order"):
        file.resume("*", "bob", "", 4)
    file.resume("Order", "bob", "", 5)
    with pytest.raises(RequestError, match="paused: nothing"):
        file.resume("Order", "bob", "", 6)
    recorded = [(one.kind, one.target, one.by, one.reason) for one in file.actions()]
    assert recorded == [
        ("pause", "*", "ada", "drain"),
        ("pause", "Order", "ada", "prices"),
        ("resume", "*", "bob", "done"),
        ("resume", "Order", "bob", ""),
    ]


@pytest.mark.parametrize("damage", [(b"Order", b"Ordel"), (b"{", b""), (None, b"")], ids=repr)
def test_damage_is_no_resume(tmp_path: Path, damage: tuple[bytes | None, bytes]) -> None:
    """A changed or emptied file is refused by gateways and writers, and stays as it is."""
    file = PauseFile(tmp_path)
    file.pause("Order", "ada", "prices", 1)
    original, changed = damage
    damaged = (
        changed if original is None else (tmp_path / PAUSES).read_bytes().replace(original, changed)
    )
    (tmp_path / PAUSES).write_bytes(damaged)
    acts = (
        file.actions,
        lambda: file.pause("Item", "ada", "", 2),
        lambda: watched_pauses(tmp_path),
    )
    for act in acts:
        with pytest.raises(Corrupt, match=r"pauses\.json: .* remove the file to end all pauses"):
            act()
    assert (tmp_path / PAUSES).read_bytes() == damaged


def test_record_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old actions are dropped, and never one that is in force."""
    monkeypatch.setattr(pauses, "_ACTIONS_MAX", 10)
    monkeypatch.setattr(pauses, "_ACTIONS_KEPT", 4)
    file = PauseFile(tmp_path)
    file.pause("Order", "ada", "prices", 0)
    for number in range(1, 40, 2):
        file.pause("Item", "ada", "", number)
        file.resume("Item", "ada", "", number + 1)
    assert targets(tmp_path) == ["Order"]
    assert len(file.actions()) <= 10
    with pytest.raises(RequestError, match="at most 500 characters"):
        file.pause("Item", "ada", "x" * 501, 50)


def test_file_is_its_owners_alone(tmp_path: Path) -> None:
    """Reasons and names are private."""
    file = PauseFile(tmp_path / "data")
    file.pause("*", "ada", "", 1)
    assert (tmp_path / "data" / PAUSES).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_no_pauses_cost_no_look_up() -> None:
    """Without pauses every request passes."""
    assert Pauses().pause_of("Order", "checkout") is None
