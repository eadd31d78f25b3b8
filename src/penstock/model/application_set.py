"""Several applications as one: `combined` binds their interfaces and builds one `App` of all their members.

The engine, the journal, HTTP and SQL know the combined application only. So a name belongs to one member of the whole
set, and a transaction spans the entities of several applications as it spans those of one.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from penstock.errors import DefinitionError
from penstock.model.application import App, unknown
from penstock.model.interface_fit import misfits, same_type
from penstock.model.registry import EntityInterface, Interface
from penstock.model.registry_path import PORTALS, STREAMS, RegistryPath
from penstock.model.streams.interface import (
    PortalInterface,
    SequencerInterface,
    StreamInterface,
)
from penstock.model.streams.routing import Sequencer
from penstock.model.streams.stream import type_name

_ROOMS: Final = {"": "entity class", STREAMS: "stream", PORTALS: "portal"}
_KEPT: Final = 16
"""The most sets that a process keeps, so that the same applications give the same object."""


def combined(apps: Sequence[App], name: str = "") -> App:
    """Return the application that consists of several applications.

    A single application without interfaces is returned as it is. The same applications give the same object.

    Args:
        name: The name of the whole; that of the first application if it is empty.

    Raises:
        DefinitionError: Two applications have the same name, or members of the same name; or an interface has
            an unknown path, or declares other types than its target has.
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
    """Return the entity classes, also by former names, the streams or the portals of an application, by name."""
    rooms: dict[str, Mapping[str, Any]] = {
        "": app.former | app.entities,
        STREAMS: app.topology.streams,
        PORTALS: app.topology.portals,
    }
    return rooms[room]


def _complaints(user: App, interface: Interface, apps: Mapping[str, App]) -> Iterator[str]:
    """Yield the reasons why an interface cannot be bound."""
    path = interface.path
    start = f"{interface.where}: application {user.name} uses {path}"
    owner = apps.get(path.app)
    if owner is None:
        missing = unknown("application", path.app, apps)
        yield f"{start}, and {missing}; name all applications that run together"
        return
    members = _members_at(owner, path.room)
    if path.name not in members:
        paths = [str(RegistryPath(path.app, path.room, name)) for name in members]
        yield f"{start}, and {unknown(_ROOMS[path.room], str(path), paths)}"
        return
    for misfit in _misfits(interface, members[path.name]):
        yield f"{start} with {misfit} at {members[path.name].where}"


def _misfits(interface: Interface, target: Any) -> Iterator[str]:
    match interface:
        case EntityInterface(declared=declared):
            yield from misfits(declared, target)
        case SequencerInterface() if not isinstance(target, Sequencer):
            yield "a sequencer, and there is another stream"
        case StreamInterface(annotation=annotation):
            if not same_type(annotation, target.annotation):
                yield (
                    f"events of type {type_name(annotation)}, and the stream has "
                    f"{type_name(target.annotation)}"
                )
        case PortalInterface(annotations=annotations):
            words = zip(("requests", "replies"), annotations, target.annotations, strict=True)
            for word, mine, its in words:
                if not same_type(mine, its):
                    yield f"{word} of type {type_name(mine)}, and the portal has {type_name(its)}"


def _bind(interface: Interface, apps: Mapping[str, App]) -> None:
    path = interface.path
    target = _members_at(apps[path.app], path.room)[path.name]
    if isinstance(interface, EntityInterface):
        interface.bind(target)
    else:
        interface.bind_to(target)
