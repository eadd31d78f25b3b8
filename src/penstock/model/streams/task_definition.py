"""The definition of a task: its class is checked when an application is built."""

from typing import Any

from penstock.base.key_text import is_key_type
from penstock.base.schema import name_of, reference_type
from penstock.model.resolver import Resolver
from penstock.model.streams.flow import FlowNode
from penstock.model.streams.stream import UNKNOWN
from penstock.model.streams.task_handlers import HandlerSearch
from penstock.model.streams.task_rows import completing_class, row_types
from penstock.model.streams.task_type import TaskType


def task_type(
    node: FlowNode,
    workflow: str,
    taken: Any,
    key_annotation: Any,
    resolver: Resolver,
    *,
    is_service: bool = False,
) -> TaskType | None:
    """Describe a task; return None after a complaint.

    Args:
        taken: The type of the events that reach the task; `UNKNOWN` if nothing declares it.
        key_annotation: The type of the keys; None for a flow without keys.
        is_service: Whether the task takes questions only.
    """
    cls: Any = node.function
    full_name = f"{workflow}.{node.name}"
    before = len(resolver.complaints)
    if not isinstance(cls, type) or reference_type(cls) is not None:
        resolver.complaints.append(
            f"{node.where}: .task of workflow {workflow}: {cls!r} is no task; a task is a class that is no entity, "
            "with a method on_event(self, event, out)"
        )
        return None
    if not (key_annotation in (None, UNKNOWN) or _is_key_type(key_annotation)):
        resolver.complaints.append(
            f"{node.where}: {full_name}: {name_of(key_annotation)} cannot be a key; a key is a str, int, UUID, "
            "date, datetime, an Enum, a tuple of these, or a reference to an entity"
        )
        return None
    is_keyed = key_annotation is not None
    rows, shared = row_types(cls, full_name, key_annotation, resolver)
    task = TaskType(
        full_name, cls, node.where, is_keyed, key_annotation, node.exclusive, rows, shared
    )
    rows.cls.__task__ = task  # type: ignore[attr-defined]
    task.completing = completing_class(task)
    search = HandlerSearch(task, resolver)
    search.find_service() if is_service else search.find(taken)
    return task if len(resolver.complaints) == before else None


def _is_key_type(annotation: Any) -> bool:
    return is_key_type(annotation) or reference_type(annotation) is not None
