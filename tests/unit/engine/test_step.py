"""An epoch as a state machine: hand-made findings in, rounds out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.ids import BUCKETS
from penstock.engine.access import AccessSet, Positions, TaskAccess
from penstock.engine.order import Hosts
from penstock.engine.step import EpochRun, Round

Touched = dict[int, str]
"""The accesses of each position: capitals were written, `aB` reads a and writes b."""


def positions(*numbers: int) -> Positions:
    return np.array(numbers, np.uint32)


def finding(touched: Touched, escaped: tuple[int, ...] = ()) -> TaskAccess:
    rows = [(position, letter) for position, letters in touched.items() for letter in letters]
    hint = AccessSet(
        np.array([position for position, _ in rows], np.uint32),
        np.array([ord(letter.lower()) for _, letter in rows], np.uint64),
        np.array([letter.isupper() for _, letter in rows], np.bool_),
    )
    return TaskAccess(hint, np.array(escaped, np.uint32))


def ran(now: Round | None) -> list[list[int]]:
    assert now is not None, "there is another round"
    return [task.tolist() for task in now.tasks]


def report(run: EpochRun, *touched: Touched) -> None:
    """Give the accesses of each task to the round that runs."""
    run.absorb([finding(one) for one in touched])


def two_tasks() -> EpochRun:
    run = EpochRun(3, [positions(0, 1), positions(2)])
    assert ran(run.next_round()) == [[0, 1], [2]]
    return run


def test_one_task_needs_one_round() -> None:
    """An epoch that ran whole in one task is finished, with any accesses."""
    run = EpochRun.single_task(2)
    assert ran(run.next_round()) == [[0, 1]]
    report(run, {0: "A", 1: "A"})
    assert run.next_round() is None
    assert (run.rounds, run.reran) == (1, 0)
    assert run.superseded(1).size == 0


def test_reading_the_same_is_no_conflict() -> None:
    """Two tasks that read an entity without a writer are finished after one round."""
    run = two_tasks()
    report(run, {0: "aB", 1: "aC"}, {2: "aD"})
    assert run.next_round() is None


def test_component_of_two_tasks_runs_again_whole() -> None:
    """Transactions of two tasks that wrote the same entity run again in one task, in order."""
    run = two_tasks()
    report(run, {0: "A", 1: "B"}, {2: "a"})
    tasks = ran(run.next_round())
    assert sorted(tasks) == [[], [0, 2]]
    assert run.superseded(1).tolist() == [0, 2]
    again: list[Touched] = [{0: "A", 2: "a"} if task else {} for task in tasks]
    report(run, *again)
    assert run.next_round() is None
    assert run.superseded(2).size == 0
    assert (run.rounds, run.reran) == (2, 2)


def test_finished_component_is_validated_again() -> None:
    """If a second run writes an entity that a finished transaction read, that transaction joins it."""
    run = two_tasks()
    report(run, {0: "A", 1: "b"}, {2: "a"})
    tasks = ran(run.next_round())
    again: list[Touched] = [{0: "A", 2: "aB"} if task else {} for task in tasks]
    report(run, *again)
    assert sorted(ran(run.next_round())) == [[], [0, 1, 2]]
    assert run.superseded(1).tolist() == [0, 1, 2]
    assert run.superseded(2).tolist() == [0, 1, 2]


def test_what_was_touched_once_counts_for_ever() -> None:
    """Touches of superseded runs still join, so that components only grow."""
    run = EpochRun(4, [positions(0, 1), positions(2, 3)])
    run.next_round()
    report(run, {0: "A", 1: "B"}, {2: "aC", 3: "b"})
    tasks = ran(run.next_round())
    assert sorted(tasks) == [[0, 2], [1, 3]], "two components, each in one task"
    everything: dict[int, str] = {0: "A", 2: "B", 1: "C", 3: "b"}
    report(run, *({one: everything[one] for one in task} for task in tasks))
    assert sorted(ran(run.next_round())) == [[], [0, 1, 2, 3]]


def test_escaped_transaction_runs_again() -> None:
    """An escape is not an outcome: the transaction runs again, also if it is alone."""
    run = two_tasks()
    run.absorb([finding({0: "a", 1: "b"}, escaped=(1,)), finding({2: "c"})])
    assert sorted(ran(run.next_round())) == [[], [1]]
    assert run.superseded(1).tolist() == [1]


def test_round_ships_what_its_host_lacks() -> None:
    """After an escape a task gets all that its transactions are known to touch elsewhere."""
    of_bucket = np.zeros(BUCKETS, np.int64)
    of_bucket[ord("b")] = 1
    run = EpochRun(2, [positions(0), positions(1)], Hosts((0, 1), of_bucket))
    first = run.next_round()
    assert first is not None
    assert [ships.size for ships in first.ships] == [0, 0], "nothing is known yet"
    run.absorb([finding({0: "acb"}, escaped=(0,)), finding({1: "b"})])
    second = run.next_round()
    assert second is not None
    assert [task.tolist() for task in second.tasks] == [[0], []]
    assert [ships.tolist() for ships in second.ships] == [[ord("b")], []]


def test_every_task_must_report() -> None:
    """A driver that loses a report is told so at once."""
    run = two_tasks()
    with pytest.raises(AssertionError, match="every task reports"):
        run.absorb([finding({})])


@given(st.integers(1, 7), st.integers(1, 4), st.data())
def test_rounds_end(count: int, tasks: int, data: st.DataObject) -> None:
    """Even when every run touches something else, there are at most count + 1 rounds."""
    task_of = data.draw(st.lists(st.integers(0, tasks - 1), min_size=count, max_size=count))
    touched = st.text("abcdABCD", max_size=2)
    run = EpochRun(
        count,
        [np.flatnonzero(np.array(task_of) == task).astype(np.uint32) for task in range(tasks)],
    )
    while (now := run.next_round()) is not None:
        assert now.number <= count + 1
        findings = [{one: data.draw(touched) for one in task.tolist()} for task in now.tasks]
        report(run, *findings)
