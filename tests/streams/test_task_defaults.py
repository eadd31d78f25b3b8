"""A key keeps the values that it has when the defaults of its task change; `clear` removes what is stored."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock import App, Emit, PerTask, clear, flow, states, stream
from penstock.testing import Kit

Change = tuple[str, int]


def budgets(allowance: int) -> App:
    """Return an application whose keys, and whose task, have an allowance."""

    class Budget:
        left: int = allowance
        total: PerTask[int] = allowance
        kept: list[int] = [allowance]

        def on_event(self, change: Change, out: Emit[str]) -> None:
            name, number = change
            if number:
                self.left += number
                self.total += number
                self.kept.append(number)
                self.kept.remove(number)
            out(f"{name} {self.left} {self.total} {self.kept}")

    changes = stream("changes", tuple[str, int])
    keyed = flow("budget", changes).key(owner)
    return App("budgets", keyed.task(Budget).sink("left", str))


def owner(change: Change) -> str:
    return change[0]


def deployed(*atoms: list[Change]) -> Kit:
    """Return an application with a greater default over the state that some atoms have left."""
    kit = Kit(budgets(10))
    for atom in atoms:
        kit.append("changes", atom)
    kit.runtime.deploy(budgets(1000))
    return kit


CHANGES: dict[str, list[list[Change]]] = {
    "in two atoms": [[("ann", -1)], [("ann", 1)]],
    "in one atom": [[("ann", -1), ("ann", 1)]],
    "in one atom, three times": [[("ann", -1), ("ann", 2), ("ann", -1)]],
    "in one atom, with another key": [[("ann", -1), ("bob", 0), ("ann", 1)]],
}


@pytest.mark.parametrize("how", CHANGES)
def test_key_keeps_values_that_equal_the_former_defaults(how: str) -> None:
    """It has changed, so its state is stored; a key that no handler has changed gets the new defaults."""
    kit = deployed(*CHANGES[how])
    kit.append("changes", [("ann", 0), ("bob", 0)])
    assert kit.atoms("left")[-1] == ["ann 10 10 [10]", "bob 1000 10 [1000]"]


def test_shared_attributes_of_an_untouched_task_get_the_new_default() -> None:
    """No handler has changed them, so nothing is stored of them."""
    kit = deployed([("ann", 0)])
    assert kit.runtime.state == {}
    kit.append("changes", [("ann", 0)])
    assert kit.atoms("left")[-1] == ["ann 1000 1000 [1000]"]


def counting(first: int, ends: Callable[[Any], None]) -> App:
    """Return an application that counts, and empties a key with the number 0."""

    class Count:
        total: int = first

        def on_event(self, number: int, out: Emit[int]) -> None:
            if number:
                self.total += number
            else:
                ends(self)
            out(self.total)

    return App("counting", flow("count", stream("numbers", int)).key(name_of).task(Count).sink("s"))


def name_of(number: int) -> str:
    return "ann"


def reset(task: Any) -> None:
    task.total = 5


def test_only_clear_removes_the_state_of_a_key() -> None:
    """After it the key has the defaults of the present code; a value that a handler has assigned is kept."""
    for ends, expected in ((clear, 71), (reset, 6)):
        for atoms in ([[1], [0]], [[1, 0]], [[1], [-1], [0]], [[1, -1, 0]], [[1, 0, 0]]):
            kit = Kit(counting(5, ends))
            for atom in atoms:
                kit.append("numbers", atom)
            assert len(kit.runtime.state) == (ends is reset), atoms
            kit.runtime.deploy(counting(70, ends))
            kit.append("numbers", [1])
            assert kit.atoms("s")[-1] == [expected], atoms


def test_state_after_a_clear_is_stored() -> None:
    """The last handler counts."""
    for atoms in ([[1, 0, 1, -1]], [[1], [0, 1, -1]], [[1], [0], [1, -1]]):
        kit = Kit(counting(5, clear))
        for atom in atoms:
            kit.append("numbers", atom)
        kit.runtime.deploy(counting(70, clear))
        kit.append("numbers", [1])
        assert kit.atoms("s")[-1] == [6], atoms


def listing(first: int) -> App:
    class Listed:
        total: int = first

        def on_event(self, number: int, out: Emit[str]) -> None:
            self.total += number

        def on_atom_complete(self, out: Emit[str]) -> None:
            for name, state in states(self):
                out(f"{name} {state.total}")

    return App("listing", flow("list", stream("numbers", int)).key(abs).task(Listed).sink("s"))


def test_states_has_each_key_with_state() -> None:
    """Also a key whose values equal the defaults, whether it got them in this atom or before."""
    kit = Kit(listing(5))
    kit.append("numbers", [1, -1])
    kit.append("numbers", [2])
    assert kit.atoms("s") == [["1 5"], ["1 5", "2 7"]]
    kit.runtime.deploy(listing(6))
    kit.append("numbers", [3])
    assert kit.atoms("s")[-1] == ["1 5", "2 7", "3 9"]
