"""`states` and `clear`: the state of a task's keys, for its handlers."""

from collections.abc import Iterator
from typing import Any, TypeVar

from penstock.errors import UserError
from penstock.model.attribute import new_value
from penstock.model.context import current
from penstock.model.streams.task_type import KEY, TaskType

T = TypeVar("T")


def states(task: T) -> Iterator[tuple[Any, T]]:
    """Yield each key that a task has state for, with the state.

    Written as `for word, count in states(self)`.

    A key has state from the first handler on that has changed its attributes, until `clear`. The keys come in the order of their texts. A task sees
    its own keys only, as they are in the running atom.

    Args:
        task: The `self` of a handler of the task.

    Raises:
        UserError: The argument is not the `self` of a task with keys.
    """
    described = _task_of(task)
    txn = current()
    rows = described.rows
    if txn.step is None:
        raise UserError(
            "states(…) gives the state of a task; only a handler of the task can call it"
        )
    keys = set(txn.step.keys(rows.prefix))
    keys |= {key for key, each in txn.instances.items() if type(each).__reference__ is rows}
    for key in sorted(keys):
        instance = rows.of_text(key[len(rows.prefix) :])
        getattr(instance, next(iter(rows.attributes), KEY))  # loads it
        values = {**object.__getattribute__(instance, "__dict__")}
        if txn.step.is_state(rows, key, values):
            yield described.key_at(key[len(rows.prefix) :]), instance


def clear(task: Any) -> None:
    """Set the attributes of the current key to their defaults; in `on_atom_complete`, those of every key.

    The state of the key is removed: only a key without state has the defaults of later code. Attributes that all keys share stay.

    Args:
        task: The `self` of a handler of the task, or a state that `states` gave.

    Raises:
        UserError: The argument is not the `self` of a task.
    """
    described = _task_of(task)
    if type(task) is described.completing:
        for _, state in list(states(task)):
            clear(state)
        return
    for name, default in described.rows.defaults.items():
        setattr(task, name, new_value(default))
    step = current().step
    if step is not None:
        step.note_cleared(described.rows.key_of(task))


def _task_of(task: Any) -> TaskType:
    described = getattr(type(task), "__task__", None)
    if not isinstance(described, TaskType):
        raise UserError(f"{type(task).__name__} is not the self of a task's handler")
    return described
