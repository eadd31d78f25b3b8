"""Several applications as one: `combined` binds their interfaces and builds one `App` of all their members.

The engine, the journal, HTTP and SQL know the combined application only. So a name belongs to one member of the whole
set, and a transaction spans the entities of several applications as it spans those of one.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from inspect import Parameter
from typing import Any, Final

from penstock.base.record import fields_of, kind_of
from penstock.base.schema import name_of
from penstock.errors import DefinitionError
from penstock.model.application import App, unknown
from penstock.model.entity_type import EntityType
from penstock.model.registry import EntityInterface, Interface
from penstock.model.registry_path import PORTALS, STREAMS, TABLES, RegistryPath
from penstock.model.shape import described
from penstock.model.signature import Signature
from penstock.model.streams.interface import (
    PortalInterface,
    SequencerInterface,
    StreamInterface,
    TableInterface,
)
from penstock.model.streams.routing import Sequencer
from penstock.model.streams.stream import UNKNOWN, type_name

# Types are compared as they are encoded: two records with the same fields of the same types are equal, also
# if they are in different modules. An interface of an entity class may leave out attributes, methods and parameters with defaults.


def misfits(interface: EntityType, target: EntityType) -> Iterator[str]:
    """Yield each difference between an interface and its entity class that the interface must not have."""
    key = (interface.key_name, target.key_name)
    if key[0] != key[1] or not same_type(interface.key_annotation, target.key_annotation):
        yield (
            f"its key is {interface.key_name}: {name_of(interface.key_annotation)}, and the class has "
            f"{target.key_name}: {name_of(target.key_annotation)}"
        )
    for name, annotation in interface.attributes.items():
        if name not in target.attributes:
            yield f"{name}: the class has no such attribute"
        elif not same_type(annotation, target.attributes[name]):
            yield (
                f"{name}: {name_of(annotation)}, and the class has {name}: "
                f"{name_of(target.attributes[name])}"
            )
    for name, signature in interface.methods.items():
        if name not in target.methods:
            yield f"{name}(): the class has no such method"
        elif not _accepts(target.methods[name], signature):
            yield f"{_text(name, signature)}, and the class has {_text(name, target.methods[name])}"


def same_type(used: Any, target: Any) -> bool:
    """Say whether the values of two types are encoded alike, or one of the types is not known."""
    both = (used, target)
    return Any in both or UNKNOWN in both or described(used) == described(target)


def _accepts(target: Signature, used: Signature) -> bool:
    """Say whether each call that fits `used` fits `target`, and gives a result of the declared type."""
    if not same_type(used.returns, target.returns):
        return False
    theirs, ours = list(target.parameters.values()), list(used.parameters.values())
    if any(not _same_parameter(mine, its) for mine, its in zip(ours, theirs, strict=False)):
        return False
    more = theirs[len(ours) :]
    return len(ours) <= len(theirs) and all(map(_is_optional, more))


def _same_parameter(used: Parameter, target: Parameter) -> bool:
    same = (used.name, used.kind) == (target.name, target.kind)
    is_filled = used.default is Parameter.empty or target.default is not Parameter.empty
    return same and is_filled and same_type(used.annotation, target.annotation)


def _is_optional(parameter: Parameter) -> bool:
    variadic = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return parameter.default is not Parameter.empty or parameter.kind in variadic


def _text(name: str, signature: Signature) -> str:
    parameters = ", ".join(
        f"{parameter.name}: {name_of(parameter.annotation)}"
        for parameter in signature.parameters.values()
    )
    return f"{name}({parameters}) -> {name_of(signature.returns)}"


_ROOMS: Final = {
    "": "entity class",
    STREAMS: "stream",
    PORTALS: "portal",
    TABLES: "published table",
}
_KEPT: Final = 16
"""The most sets that a process keeps, so that the same applications give the same object."""


def combined(apps: Sequence[App], name: str = "") -> App:
    """Return the application that consists of several applications.

    A single application without interfaces is returned as it is. The same applications give the same object.

    Args:
        name: The name of the whole; that of the first application if it is empty.
    """
    chosen = name or apps[0].name
    if len(apps) == 1 and not apps[0].interfaces and chosen == apps[0].name:
        return apps[0]
    return _combined(chosen, *apps)


@functools.lru_cache(maxsize=_KEPT)
def _combined(name: str, *apps: App) -> App:
    by_name = {app.name: app for app in apps}
    uses = [(app, interface) for app in apps for interface in app.interfaces]
    complaints = [
        f"two applications are named {app.name}; rename one of them"
        for app in apps
        if by_name[app.name] is not app
    ]
    for app, interface in uses:
        complaints += _complaints(app, interface, by_name)
    if complaints:
        raise DefinitionError(complaints)
    for _, interface in uses:
        _bind(interface, by_name)
    whole = App(name, *(member for app in apps for member in app.members))
    whole.parts = apps
    return whole


def _members_at(app: App, room: str) -> Mapping[str, Any]:
    """Return the entity classes, also by former names, the streams, portals or tables of an application, by name."""
    rooms: dict[str, Mapping[str, Any]] = {
        "": app.former | app.entities,
        STREAMS: app.topology.streams,
        PORTALS: app.topology.portals,
        TABLES: app.topology.tables,
    }
    return rooms[room]


def _room_of(interface: Interface) -> str:
    return TABLES if isinstance(interface, TableInterface) else interface.path.room


def _complaints(user: App, interface: Interface, apps: Mapping[str, App]) -> Iterator[str]:
    """Yield the reasons why an interface cannot be bound."""
    path = interface.path
    start = f"{interface.where}: application {user.name} uses {path}"
    owner = apps.get(path.app)
    if owner is None:
        missing = unknown("application", path.app, apps)
        yield f"{start}, and {missing}; name all applications that run together"
        return
    room = _room_of(interface)
    members = _members_at(owner, room)
    if path.name not in members:
        paths = [str(RegistryPath(path.app, path.room, name)) for name in members]
        yield f"{start}, and {unknown(_ROOMS[room], str(path), paths)}"
        return
    for misfit in _misfits(interface, members[path.name]):
        yield f"{start} with {misfit} at {members[path.name].where}"


def _misfits(interface: Interface, target: Any) -> Iterator[str]:
    match interface:
        case EntityInterface(declared=declared):
            yield from misfits(declared, target)
        case SequencerInterface() if not isinstance(target, Sequencer):
            yield "a sequencer, and there is another stream"
        case TableInterface():
            yield from _row_misfits(interface.row, target.row)
        case StreamInterface(annotation=annotation):
            if not same_type(annotation, target.annotation):
                yield (
                    f"events of type {type_name(annotation)}, and the stream has "
                    f"{type_name(target.annotation)}"
                )
        case PortalInterface(annotations=annotations):
            yield from _portal_misfits(annotations, target.annotations)


def _portal_misfits(used: Sequence[Any], target: Sequence[Any]) -> Iterator[str]:
    for word, mine, its in zip(("requests", "replies"), used, target, strict=True):
        if not same_type(mine, its):
            yield f"{word} of type {type_name(mine)}, and the portal has {type_name(its)}"


def _row_misfits(used: Any, target: Any) -> Iterator[str]:
    """Yield each difference between the rows that an application takes and those of the table.

    The name of the record does not matter: a table of a class has none that an application could use.
    """
    if UNKNOWN in (used, target) or _nameless(used) == _nameless(target):
        return
    both = f"rows of type {type_name(used)}, and the table has rows of {type_name(target)}"
    if kind_of(used) is not kind_of(target):
        yield f"{both}, which is stored in another way"
        return
    ours, theirs = _fields(used), _fields(target)
    for name in dict.fromkeys((*ours, *theirs)):
        mine, its = (name_of(each[name]) if name in each else "" for each in (ours, theirs))
        if not its:
            yield f"{name}: {mine}, and the rows of the table have no such field,"
        elif not mine:
            yield f"rows without {name}, and the rows of the table have {name}: {its}"
        elif not same_type(ours[name], theirs[name]):
            yield f"{name}: {mine}, and the rows of the table have {name}: {its}"


def _nameless(row: Any) -> list[str]:
    label, *lines = described(row)
    return [line.removeprefix(label) for line in lines]


def _fields(row: Any) -> dict[str, Any]:
    return {field.member.wire: field.annotation for field in fields_of(row)}


def _bind(interface: Interface, apps: Mapping[str, App]) -> None:
    path = interface.path
    target = _members_at(apps[path.app], _room_of(interface))[path.name]
    if isinstance(interface, EntityInterface):
        interface.bind(target)
    else:
        interface.bind_to(target)
