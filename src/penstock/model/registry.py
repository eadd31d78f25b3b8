"""The registry: how an application refers to entities, streams, tables and portals of other applications.

An application declares an *interface*: the path of a thing of another application, and the part of it that it uses.
The application itself can be written and imported without the other application. `application_set.combined` finds
the things behind the paths, compares the types and binds the interfaces; until then an interface has no target.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from penstock.errors import DefinitionError
from penstock.model.declaration import caller_place
from penstock.model.entity import entity
from penstock.model.entity_type import EntityType
from penstock.model.registry_path import PORTALS, STREAMS, RegistryPath, parse_path
from penstock.model.streams.interface import (
    PortalInterface,
    SequencerInterface,
    StreamInterface,
    TableInterface,
)
from penstock.model.streams.portal import Portal
from penstock.model.streams.routing import Sequencer
from penstock.model.streams.row_change import Put, Removed
from penstock.model.streams.stream import Stream

E = TypeVar("E", bound=type)
T = TypeVar("T")
Q = TypeVar("Q")
A = TypeVar("A")


class _InterfaceClass(type):
    """The class of the classes that declare interfaces: the references that they make are instances of them."""

    def __instancecheck__(cls, instance: Any) -> bool:
        reference: EntityType = cls.__reference__  # type: ignore[attr-defined]
        return getattr(type(instance), "__reference__", None) is reference


@dataclass(frozen=True, slots=True, eq=False)
class EntityInterface:
    """The part of an entity class of another application that an application uses.

    Attributes:
        cls: The class that declares the interface; the name of its class is that of the path.
        declared: The description of `cls`, as the application declares it.
        where: `file:line` of the declaration.
    """

    path: RegistryPath
    cls: type
    declared: EntityType
    where: str

    def bind(self, target: EntityType) -> None:
        """Let `cls` stand for an entity class of another application."""
        self.cls.__reference__ = target  # type: ignore[attr-defined]
        self.cls.__stands_for__ = target.cls  # type: ignore[attr-defined]
        if self.cls not in target.interfaces:
            target.interfaces = (*target.interfaces, self.cls)

    @property
    def is_bound(self) -> bool:
        """Whether `cls` stands for an entity class."""
        return self.cls.__reference__ is not self.declared  # type: ignore[attr-defined]


Interface = EntityInterface | StreamInterface[Any] | PortalInterface[Any, Any]
"""A declaration of the registry; its application names it as a member."""


class Registry:
    """Declares interfaces of other applications; `penstock.registry` is the only instance."""

    def entity(self, path: str) -> Callable[[E], E]:
        """Return a decorator for a class that declares the part of an entity class that is used.

        The class has the name of the entity class, its key, and the attributes and methods that are used; the bodies of
        its methods never run. `@registry.entity("/stock/Item")` above `class Item(Entity)`. The class is a member of the
        `App`, as its own classes are, and it is used as these are.

        Args:
            path: The application and the class: `/stock/Item`.

        Raises:
            DefinitionError: The path is wrong, or the class has another name than the path.
        """
        where = caller_place()
        parsed = parse_path(path, "", where)

        def declare(cls: E) -> E:
            if cls.__name__ != parsed.name:
                raise DefinitionError(
                    [
                        f"{where}: @registry.entity({path!r}) decorates a class that is named {parsed.name}, "
                        f"not {cls.__name__}"
                    ]
                )
            made: Any = _remade(entity(cls))
            made.__interface__ = EntityInterface(parsed, made, made.__reference__, where)
            return cast(E, made)

        return declare

    def stream(self, path: str, events: type[T]) -> Stream[T]:
        """Declare that a stream of another application is used.

        A workflow takes it as its source; a handler may `emit` on it if it takes appends and is a member of the `App`.

        Args:
            path: The application and the stream: `/orders/streams/paid`.
            events: The type of the events; a record with the same fields as that of the other application.

        Raises:
            DefinitionError: The path is wrong.
        """
        where = caller_place()
        return StreamInterface(parse_path(path, STREAMS, where), events, where)

    def rows(self, path: str, row: type[T]) -> Stream[Put[T] | Removed]:
        """Declare that a published table of another application is used; a workflow takes it as its source.

        Each atom has the changes of rows of one transaction. With `flow(…, start="earliest")`, the rows that are there come
        first.

        Args:
            path: The application and the table: `/shop/open_orders`.
            row: The type of the rows; a record with the same fields as that of the other application.

        Raises:
            DefinitionError: The path is wrong.
        """
        where = caller_place()
        return TableInterface(parse_path(path, "", where), row, where)

    def sequencer(self, path: str, events: type[T]) -> Sequencer[T]:
        """Declare that a sequencer of another application is used: `connect(replies, registry.sequencer(…))`.

        So a cycle of workflows may go through several applications.

        Args:
            path: The application, and the stream of the sequencer: `/orders/streams/loop`.
            events: The type of the events, as for `stream`.

        Raises:
            DefinitionError: The path is wrong.
        """
        where = caller_place()
        interface: Any = SequencerInterface(parse_path(path, STREAMS, where), events, where)
        return cast(Sequencer[T], interface)

    def portal(self, path: str, request: type[Q], reply: type[A]) -> Portal[Q, A]:
        """Declare that a portal of another application is asked; it is a member of the `App`.

        Args:
            path: The application and the portal: `/stock/portals/take`.

        Raises:
            DefinitionError: The path is wrong.
        """
        where = caller_place()
        return PortalInterface(parse_path(path, PORTALS, where), request, reply, where)


registry: Final = Registry()
"""Refers to the entities, streams and portals of other applications; see `Registry`."""


def interface_of(member: object) -> EntityInterface | None:
    """Return the interface that a class declares; None for any other member of an application."""
    return vars(member).get("__interface__") if isinstance(member, type) else None


def _remade(cls: type) -> type:
    """Return an entity class again, as an instance of `_InterfaceClass`."""
    left_out = ("__dict__", "__weakref__")
    names = {name: value for name, value in vars(cls).items() if name not in left_out}
    made = _InterfaceClass(cls.__name__, cls.__bases__, names | {"__qualname__": cls.__qualname__})
    made.__new__ = names["__new__"]  # type: ignore[method-assign]  # Python made it a static method
    made.__reference__.cls = made  # type: ignore[attr-defined]
    return made
