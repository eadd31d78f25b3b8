"""Direct tasks: the only task of a workflow, which takes the events of the source and publishes those of the sink.

Most events of requests go to such a workflow, one in each atom. Then the parts of `WorkflowStep` that order tasks and
events would take longer than the handler. `WorkflowStep.take_atom` uses a direct task in their place; the result is the
same.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.engine.streams.handler_start import TaskOutput, task_output
from penstock.model.streams.flow import FlowOperator
from penstock.model.streams.task_type import TaskType
from penstock.model.streams.workflow_plan import WorkflowPlan


class DirectTask(NamedTuple):
    """The only task of a workflow.

    Attributes:
        key: Returns the key of an event; None for a task without keys.
        out: The `out` of its handler, in a tuple; empty if the handler takes none.
    """

    task: TaskType
    decode: Callable[[bytes], Any]
    key: Callable[[Any], Any] | None
    out: tuple[TaskOutput, ...]


def direct_task(plan: WorkflowPlan) -> DirectTask | None:
    """Return the direct task of a workflow; None if it has none."""
    workflow = plan.workflow
    task = plan.task_of.get(workflow.last)
    if len(plan.tasks) != 1 or task is None or task.event is None or task.output is None:
        return None
    if task.exclusive or task.completion is not None:
        return None
    (taken,) = workflow.last.inputs
    key = taken.function if taken.operator is FlowOperator.KEY else None
    source = taken if key is None else taken.inputs[0]
    is_direct = source.operator is FlowOperator.SOURCE and (key is None) is not task.is_keyed
    has_types = (
        task.event.constrained == workflow.source.events.constrained
        and task.output.constrained == workflow.events.constrained
    )
    if not (is_direct and has_types):
        return None  # functions or conversions are between
    if key is not None and not task.event.is_shared:
        return None  # the function and the handler get an object each
    out = (task_output(task),) if task.takes_out else ()
    decode = workflow.source.events.decode if task.event.is_shared else task.event.decode
    return DirectTask(task, decode, key, out)
