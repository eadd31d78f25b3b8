"""The surroundings of workflow steps, which all steps of a runner share."""

from collections.abc import Callable
from typing import NamedTuple

from penstock.base.ids import EntityKey
from penstock.engine.execute import Executor
from penstock.engine.streams.personal_work import PersonalWork
from penstock.engine.streams.waiting import Held, PortalQuestion
from penstock.engine.streams.waits import Waits
from penstock.errors import UserError
from penstock.model.application import App
from penstock.model.streams.task_type import TaskType


class StepServices(NamedTuple):
    """The surroundings that all steps of a runner share.

    Attributes:
        waits: The waiting handlers; a step changes them.
        keys: Returns the stored keys that begin with a prefix, in order.
        size_max: The most bytes of all events, questions and answers of a step; and of the history of a handler.
    """

    app: App
    waits: Waits
    keys: Callable[[str], list[EntityKey]]
    size_max: int
    executor: Executor
    personal: PersonalWork


class Unrecorded(Exception):
    """A handler waits, and has read rows before the step began to note its reads."""


class Unfit(Exception):
    """A pending event cannot be encoded, so the step runs again without pending events."""


def kind_of(item: Held | None) -> str:
    """Return the kind of the handler that takes an item; None is the end of an atom."""
    if type(item) is PortalQuestion:
        return f"portal {item.portal}"
    return "complete" if item is None else "event"


def listing_error(task: TaskType) -> UserError:
    """Return the error of a handler that waits and lists the keys of its task."""
    return UserError(
        f"{task.name}: a handler that waits for a reply cannot use states(self), because its wait would keep the "
        "state of all keys; keep the values that it needs in a PerTask attribute, or use states(self) in a method "
        "that neither awaits nor uses .then"
    )
