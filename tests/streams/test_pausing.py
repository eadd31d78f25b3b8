"""A workflow that pauses holds the failed atom and everything behind it, in order, until it is resumed."""

from typing import Any

import pytest

from penstock import App, DefinitionError, FailedAtom, flow
from penstock.errors import Aborted, RequestError
from penstock.testing import Kit
from tests.differential.pausing_app import FORBIDDEN, Asking, numbers, others, totals

twice = flow("twice", numbers).map(lambda n: 2 * n).sink("doubled", int)
asked = flow("asking", others).task(Asking).sink("asked")


@pytest.fixture
def kit() -> Kit:
    FORBIDDEN.clear()
    FORBIDDEN.update({0})
    kit = Kit(App("pausing", totals, twice, asked))
    kit.append(numbers, [1])
    with pytest.raises(Aborted, match="0 is forbidden"):
        kit.append(numbers, [5, 0])
    kit.append(numbers, [2])
    kit.append(others, [100])
    kit.append(numbers, [3])
    return kit


def failed_of(kit: Kit) -> list[tuple[list[int], str]]:
    failed: list[list[FailedAtom]] = kit.atoms(totals.failed)
    return [
        ([numbers.events.decode(data) for data in one.events], one.message) for (one,) in failed
    ]


def test_paused_workflow_holds_its_atoms_and_questions(kit: Kit) -> None:
    """The other workflows go on; the failed atom has changed nothing."""
    assert kit.atoms(totals) == [[1]]
    assert kit.task("total.Total") == {"total": 1}
    assert kit.atoms(twice) == [[2], [10, 0], [4], [6]]
    assert kit.atoms(asked) == [[]]
    state = kit.paused()["total"]
    assert state.held == 4
    assert state.failure is not None
    assert state.failure.message == "0 is forbidden"
    assert failed_of(kit) == []


def test_resumed_workflow_takes_everything_in_order(kit: Kit) -> None:
    """Once the handler accepts the atom, the result is that of a run without a failure."""
    FORBIDDEN.clear()
    kit.resume("total")
    assert kit.atoms(totals) == [[1], [6, 6], [8], [], [11]]
    assert kit.atoms(asked) == [[], [108]]
    assert kit.paused() == {}
    assert not [key for key in kit.runtime.state if key.startswith("$held")]
    kit.append(numbers, [1])
    assert kit.atoms(totals)[-1] == [12]


def test_failing_again_pauses_again(kit: Kit) -> None:
    """A handler that fails again holds the same atoms again; then the failed atom can be set aside."""
    for _ in range(3):
        with pytest.raises(Aborted, match="0 is forbidden"):
            kit.resume("total")
        assert kit.paused()["total"].held == 4
    kit.resume("total", skip=True)
    assert failed_of(kit) == [([5, 0], "ValueError: 0 is forbidden")]
    assert kit.atoms(totals) == [[1], [3], [], [6]]
    assert kit.atoms(asked) == [[], [103]]


def test_second_failure_in_the_held_atoms_pauses_there(kit: Kit) -> None:
    """The pause begins again at the next failing atom, and the atoms behind it keep their order."""
    FORBIDDEN.add(2)
    with pytest.raises(Aborted, match="2 is forbidden"):
        kit.resume("total", skip=True)
    assert kit.atoms(totals) == [[1]]
    assert kit.paused()["total"].held == 3
    kit.append(numbers, [4])
    kit.resume("total", skip=True)
    assert kit.atoms(totals) == [[1], [], [4], [8]]
    assert kit.atoms(asked) == [[], [101]]


def test_resume_of_a_workflow_that_is_not_paused_is_refused(kit: Kit) -> None:
    """The message names the workflow, or a name that is similar."""
    for name, message in (("twice", "twice is not paused"), ("totl", "did you mean total")):
        with pytest.raises(RequestError, match=message):
            kit.resume(name)


def test_unknown_policy_is_a_mistake() -> None:
    """`App` names the two policies."""
    policy: Any = "stop"
    wrong = flow("wrong", numbers, on_failure=policy).map(abs).sink("wrongs", int)
    with pytest.raises(DefinitionError, match='on_failure is "set-aside" or "pause", not \'stop\''):
        App("wrong", wrong)
