"""Streams and portals of other applications: declared with `registry`, and bound when a set of applications is built."""

import typing
from typing import Any, TypeVar

from penstock.base.annotations import UNIONS
from penstock.model.registry_path import RegistryPath
from penstock.model.streams.portal import Portal
from penstock.model.streams.row_change import Put, Removed
from penstock.model.streams.stream import UNKNOWN, Stream


def fits(given: Any, wanted: Any) -> bool:
    """Say whether events of one type can be events of another; an unknown type is checked later."""
    if given == wanted or Any in (given, wanted) or UNKNOWN in (given, wanted):
        return True
    if typing.get_origin(given) in UNIONS:
        return all(fits(member, wanted) for member in typing.get_args(given))
    if typing.get_origin(wanted) in UNIONS:
        return any(fits(given, member) for member in typing.get_args(wanted))
    cls = typing.get_origin(given) or given
    is_class = isinstance(cls, type) and isinstance(wanted, type)
    return (given is int and wanted is float) or (is_class and issubclass(cls, wanted))


T = TypeVar("T")
Q = TypeVar("Q")
A = TypeVar("A")


class StreamInterface(Stream[T]):
    """A stream of another application, with the type of events that this application reads or emits."""

    def __init__(self, path: RegistryPath, annotation: Any, where: str) -> None:
        super().__init__(path.name, annotation, where)
        self.path = path

    def bind_to(self, target: Stream[Any]) -> None:
        """Let this interface stand for a stream of another application."""
        self.origin, self.is_open = target, target.is_open

    @property
    def is_bound(self) -> bool:
        """Whether it stands for a stream."""
        return self.origin is not self


class TableInterface(StreamInterface[T]):
    """A published table of another application.

    Attributes:
        row: The type of its rows.
    """

    def __init__(self, path: RegistryPath, row: Any, where: str) -> None:
        super().__init__(path, Put[row] | Removed, where)
        self.row = row


class SequencerInterface(StreamInterface[T]):
    """A sequencer of another application, to which this application connects streams."""


class PortalInterface(Portal[Q, A]):
    """A portal of another application, with the types of requests and replies that this application uses."""

    def __init__(self, path: RegistryPath, request: Any, reply: Any, where: str) -> None:
        super().__init__(path.name, request, reply, None, where)
        self.path = path

    def bind_to(self, target: Portal[Any, Any]) -> None:
        """Let this interface stand for a portal of another application."""
        self.origin = target
