"""Plans of arguments: they are made with the application, so a transaction runs no code of a parameter's type."""

from dataclasses import dataclass
from enum import EnumMeta, IntEnum
from typing import Any

import pytest

from penstock import App, Entity, key
from penstock.base.ids import EntityKey, RequestId
from penstock.engine.execute import Limits
from penstock.engine.task import Task
from penstock.process.guard import Guard
from tests.native_build import needs_compiled


@pytest.fixture(autouse=True)
def _compiled() -> None:
    needs_compiled()


class Watched(EnumMeta):
    """The class of a class: it counts how often the class is asked for its hash."""

    asked = 0

    def __hash__(cls) -> int:
        Watched.asked += 1
        return 7


class Grade(IntEnum, metaclass=Watched):
    """A type of an argument."""

    GOOD = 1


@dataclass
class Note:
    """A type that no plan knows, because to make it runs code of the user."""

    text: str = ""

    def __post_init__(self) -> None:
        assert len(self.text) < 100


class Pupil(Entity):
    name: str = key()

    def graded(self, grade: Grade) -> int:
        return int(grade)

    def noted(self, note: Note, times: int = 1) -> str:
        return note.text * times

    def moved(self, to: "Pupil", by: int) -> str:
        return to.name * by


def outcomes_of(app: App) -> list[bytes]:
    """Return the replies to calls with every kind of argument, from one batch of a task."""
    state: dict[EntityKey, bytes | None] = {}
    task = Task(app, state.get, Limits(), keys=lambda _: [])
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("graded", (Grade.GOOD,)),
        ("noted", (Note("a"),)),
        ("noted", (Note("a"), 3)),
        ("moved", (Pupil("b"), 2)),
    ]
    bodies = [app.request("Pupil", "a", "create", ())[0]]
    bodies += [app.request("Pupil", "a", method, arguments)[0] for method, arguments in calls]
    Watched.asked = 0
    with Guard(task.executor, Limits(), batched=True) as guard:
        outcomes = [
            task.run(n, RequestId(f"r{n}"), body, 0) for n, body in guard.each(enumerate(bodies))
        ]
    return [b"none" if outcome is None else outcome.reply for outcome in outcomes]


def test_no_type_of_an_argument_is_asked_in_a_transaction() -> None:
    """The plans exist when the application does: a type's own code runs in no transaction."""
    app = App("pupils", Pupil)
    replies = outcomes_of(app)
    assert Watched.asked == 0
    assert replies[1:] == [b"\x01", b"\xa1a", b"\xa3aaa", b"\xa2bb"]
    methods = app.entities["Pupil"].methods
    assert methods["moved"].plan is not None
    assert methods["noted"].plan is None
