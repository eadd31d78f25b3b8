"""Paths of the registry: `/stock/Item`, `/orders/streams/paid`, `/stock/portals/take`."""

import re
from typing import Final

import msgspec

from penstock.errors import DefinitionError

STREAMS: Final = "streams"
PORTALS: Final = "portals"
TABLES: Final = "tables"
"""The room of published tables; a path does not name it, so a table of a class has the path of the class."""

_PATH: Final = re.compile(
    r"/(?P<app>[A-Za-z][\w-]*)(?:/(?P<room>streams|portals))?/(?P<name>[A-Za-z_][\w-]*)", re.ASCII
)


class RegistryPath(msgspec.Struct, frozen=True):
    """The path of an entity class, a stream or a portal.

    Attributes:
        room: `streams` or `portals`; empty for an entity class.
    """

    app: str
    room: str
    name: str

    def __str__(self) -> str:
        return "/".join(("", self.app, *filter(None, (self.room,)), self.name))


def parse_path(path: str, room: str, where: str) -> RegistryPath:
    """Return a path of the registry.

    Args:
        room: `streams` or `portals`; empty for an entity class.
        where: `file:line` of the declaration, for the error.
    """
    given: object = path
    match = _PATH.fullmatch(given) if isinstance(given, str) else None
    if match is None or (match["room"] or "") != room:
        form = "/".join(("/application", *filter(None, (room,)), "name" if room else "Class"))
        raise DefinitionError([f"{where}: {given!r} is not a path; its form is {form}"])
    return RegistryPath(match["app"], room, match["name"])
