"""The members of an application, sorted: entity classes, functions, interfaces, and parts of the topology."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.base.schema import reference_type
from penstock.model.declaration import where_of
from penstock.model.registry import EntityInterface, interface_of
from penstock.model.streams.flow import Flow
from penstock.model.streams.topology import StreamMember, sort_out_streams


@dataclass(slots=True)
class Members:
    """The members of an application.

    Attributes:
        migrations: The functions that are marked `@migrate`.
        flowing: Streams, workflows and all else that atoms flow through.
        interfaces: The interfaces of entity classes of other applications.
    """

    classes: dict[str, type] = field(default_factory=dict)
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)
    migrations: list[Callable[..., Any]] = field(default_factory=list)
    flowing: list[StreamMember | Flow[Any]] = field(default_factory=list)
    interfaces: list[EntityInterface] = field(default_factory=list)


def sort_out(members: Sequence[Any], complaints: list[str]) -> Members:
    """Sort the members of an application, and add a complaint about each object that cannot be a member."""
    sorted_members = Members()
    taken: dict[str, Any] = {}
    sorted_members.flowing, others = sort_out_streams(members)
    sorted_members.interfaces = list(filter(None, map(interface_of, others)))
    for member in others:
        label = getattr(member, "__name__", repr(member))
        if hasattr(member, "__migration__"):
            sorted_members.migrations.append(member)
        elif _is_bound(member):
            continue  # its entity class is a member, too
        elif label in taken and taken[label] is not member:
            complaints.append(
                f"{where_of(member)}: the name {label} is taken by {where_of(taken[label])}"
            )
        else:
            taken[label] = member
            _sort(member, label, sorted_members, complaints)
    return sorted_members


def _is_bound(member: object) -> bool:
    """Say whether a member is a class that stands for an entity class of another application."""
    interface = interface_of(member)
    return interface is not None and interface.is_bound


def _sort(member: Any, label: str, members: Members, complaints: list[str]) -> None:
    if isinstance(member, type) and reference_type(member) is not None:
        members.classes[label] = member
    elif inspect.isfunction(member) and hasattr(member, "__transactional__"):
        members.functions[label] = member
    else:
        complaints.append(
            f"{where_of(member)}: {label} is neither an @entity class "
            f"nor a @transactional function{_advice_on(member)}"
        )


def _advice_on(member: object) -> str:
    """Return what to do with a member that is the class of a task; empty for any other member."""
    if not isinstance(member, type) or not hasattr(member, "on_event"):
        return ""
    return f"; a task belongs to a workflow: flow(stream).task({member.__name__})"
