"""Deployments that change the class of a task: renamed, or with attributes of another meaning."""

import enum
from typing import Any

import pytest

from penstock import App, Emit, PerTask, flow, migrate, stream
from penstock.errors import ClassChanged, DefinitionError
from penstock.testing import Kit


class Count:
    total: int = 0
    every: PerTask[int] = 0

    def on_event(self, word: str, out: Emit[int]) -> None:
        self.total += 1
        self.every += 1
        out(self.total)


class Counter(Count):
    """The class with another name."""


def counting(task: type, workflow: str = "words", **more: Any) -> App:
    words = stream("lines", str)
    return App("words", flow(workflow, words).key(str).task(task, **more).sink("counts", int))


@pytest.mark.parametrize("workflow", ["words", "terms"])
def test_refusal_of_a_renamed_task_has_a_remedy(workflow: str) -> None:
    """With the former names, the state of all keys is there."""
    kit = Kit(counting(Count))
    kit.append("lines", ["a", "b", "a"])
    with pytest.raises(ClassChanged) as raised:
        kit.runtime.deploy(counting(Counter, workflow))
    for told in (
        '.task(…, name="Count")',
        'flow("words", …)',
        "--drop words.Count",
        f"{workflow}.Counter has",
    ):
        assert told in str(raised.value)
    kit.runtime.deploy(counting(Counter, name="Count"))
    kit.append("lines", ["a"])
    assert kit.atoms("counts")[-1] == [3]
    assert kit.task("words.Count", "a") == {"total": 3, "every": 4}


class Former(enum.Enum):
    NEW = enum.auto()
    PAID = enum.auto()


class Present(enum.Enum):
    DRAFT = enum.auto()
    NEW = enum.auto()
    PAID = enum.auto()


def billing(status: Any, *functions: Any) -> App:
    """Return an application whose keys have a status, which all keys share, too."""

    class Bill:
        status_: status = status.NEW
        last: PerTask[status] = status.NEW

        def on_event(self, name: str, out: Emit[str]) -> None:
            if name.startswith("pay"):
                self.status_ = self.last = status.PAID
            out(f"{self.status_.name} {self.last.name}")

    return App(
        "bills", flow("bills", stream("names", str)).key(str).task(Bill).sink("told"), *functions
    )


def test_function_changes_the_state_of_a_task() -> None:
    """The refusals name two functions, one for each key and one for what all keys share; with them, values keep their meaning."""
    kit = Kit(billing(Former))
    kit.append("names", ["pay"])
    with pytest.raises(ClassChanged) as raised:
        kit.runtime.deploy(billing(Present))
    assert '@migrate("bills.Bill", since=2)' in str(raised.value)
    assert '@migrate("bills.Bill.task", since=2)' in str(raised.value)

    @migrate("bills.Bill", since=2)
    def of_a_key(old: dict[str, Any]) -> dict[str, Any]:
        return {"status_": old["status_"] + 1}

    @migrate("bills.Bill.task", since=2)
    def of_all_keys(old: dict[str, Any]) -> dict[str, Any]:
        return {"last": old["last"] + 1}

    kit.runtime.deploy(billing(Present, of_a_key, of_all_keys))
    kit.append("names", ["pay", "show"])
    assert kit.atoms("told")[-1] == ["PAID PAID", "NEW PAID"]


def test_function_for_no_task_is_a_complaint() -> None:
    """It names the tasks that there are."""

    @migrate("bills.Bil", since=2)
    def wrong(old: dict[str, Any]) -> dict[str, Any]:
        return old

    with pytest.raises(
        DefinitionError, match=r"no task; the tasks are bills.Bill, bills.Bill.task"
    ):
        billing(Former, wrong)
