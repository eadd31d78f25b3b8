"""Published tables: the rows of an entity class, or those that a row function makes, as a stream of changes.

`publish` declares a table. After each transaction that has changed entities of its class, a step of the cascade makes
their rows again, and publishes the difference: `Put` for a row that is new or has changed, `Removed` for one that is
gone. So a table is a stream, and everything that takes streams takes it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import msgspec

from penstock.base.constraint import without_constraints
from penstock.base.schema import reference_type
from penstock.errors import OutsideTransaction, UserError
from penstock.model.declaration import caller_place
from penstock.model.entity_type import EntityType
from penstock.model.resolver import Resolver
from penstock.model.streams.failed_atom import FailedAtom
from penstock.model.streams.row_change import Put, Removed
from penstock.model.streams.row_function import (
    READS_MORE,
    RowFunction,
    encoded_rows,
    rows_of,
)
from penstock.model.streams.stream import UNKNOWN, Stream

R = TypeVar("R")


# The engine hands changed entities to the tables of their class as atoms of a stream that no application can name and no
# journal has.

_CHANGES: Final = "$"
_encode: Final = msgspec.msgpack.Encoder().encode

decode_changed: Final = msgspec.msgpack.Decoder(tuple[str, bytes | None]).decode
"""Reads an event of such an atom: the text of a key, and the row of the entity; None if it does not exist any more."""


def changes_of(stored_class: str) -> str:
    """Return the name of the stream of the changed entities of a class."""
    return _CHANGES + stored_class


def encode_changed(text: str, state: bytes | None) -> bytes:
    """Return an event about an entity; see `decode_changed`."""
    return _encode((text, state))


_AtPlace = Callable[[int, Any], bytes]


class PublishedTable(Stream[Put[R] | Removed]):
    """A table that other applications and programs take as a stream of changes; see `publish`.

    Attributes:
        source: The entity class; None after a complaint.
        row: The type of the rows.
        failed: The stream of the entities whose rows could not be made.
    """

    def __init__(self, shown: Any, name: str, where: str) -> None:
        super().__init__(name, UNKNOWN, where)
        self._shown = shown
        self.failed: Stream[FailedAtom] = Stream(f"{name}-failed", FailedAtom, where)
        self.source: EntityType | None = None
        self.row: Any = UNKNOWN
        self._make: Callable[[Any, _AtPlace], list[bytes]] = lambda _, __: []

    def plan(self, resolver: Resolver) -> None:
        """Find the class and the type of the rows; mistakes become complaints of the resolver."""
        given = self._shown.source if isinstance(self._shown, RowFunction) else self._shown
        source = reference_type(given) if isinstance(given, type) else None
        complaint = self._complaint(given, source, resolver)
        if complaint:
            resolver.complaints.append(f"{self.where}: table {self.name}: {complaint}")
        elif isinstance(self._shown, RowFunction):
            self._plan_function(self._shown, resolver)
            self.source = cast("EntityType", source)
        else:
            self.source = cast("EntityType", source)
            self._plan_class(self.source)

    @staticmethod
    def _complaint(given: Any, source: object, resolver: Resolver) -> str:
        """Return why the table cannot be published; empty if it can."""
        if not isinstance(source, EntityType):
            return f"{given!r} cannot be published; name an entity class or a function with @rows"
        if not resolver.knows(given):
            return f"{given.__name__} is not part of the application; name it there"
        if "__interface__" in vars(given):
            return f"{given.__name__} belongs to another application; publish it there"
        if source.personal:
            return (
                f"{given.__name__} is a personal class, and its rows would be copied to every subscriber; publish a class that "
                "refers to persons: rows with references to them are encrypted"
            )
        return ""

    def _plan_function(self, shown: RowFunction[Any, Any], resolver: Resolver) -> None:
        planned = rows_of(shown, resolver)
        if planned is None:
            return
        row_type, is_single = planned
        self._declare(row_type.constrained)
        self._make = lambda entity, encode: encoded_rows(
            shown.function(entity), encode, is_single=is_single
        )

    def _plan_class(self, source: EntityType) -> None:
        fields = [(source.key_name, source.key_annotation), *source.attributes.items()]
        row = dataclasses.make_dataclass(source.name, fields)
        self._declare(row)
        self._make = lambda entity, encode: [encode(0, row(**vars(entity)))]

    def _declare(self, row: Any) -> None:
        self.row, self.declared = row, Put[row] | Removed
        self.annotation = without_constraints(self.declared)

    def rows_of(self, text: str, state: bytes) -> list[bytes]:
        """Make the rows of an entity: an encoded `Put` for each. This runs code of the application.

        Args:
            text: The text of its key.
            state: Its row, perhaps of an earlier version of the class.

        Raises:
            Exception: Anything that the row function raises; `Unencodable` if a row does not fit its type.
        """
        source = self.source
        assert source is not None, "an application was built with the table"
        key = source.key_at(text)
        if not state.startswith(source.row_head):
            state = source.present(key, state)
        entity: Any = object.__new__(source.cls)
        entity.__dict__.update(source.decode(key, state))
        encode = self.events.encode
        try:
            return self._make(entity, lambda place, row: encode(Put(text, row, place)))
        except OutsideTransaction:
            raise UserError(READS_MORE) from None

    def removed(self, text: str, place: int) -> bytes:
        """Return an encoded `Removed`."""
        return self.events.encode(Removed(text, place))


def publish(shown: type | RowFunction[Any, Any], /, name: str = "") -> PublishedTable[Any]:
    """Publish a table: other applications take it by `registry.rows`, and programs by `GET /tables/{name}`.

    The table is a member of the `App`, and a stream of changes, `Put` and `Removed`: one atom for each transaction
    that changes rows.

    Args:
        shown: An entity class, for a row with the key and the attributes of each entity; or a function marked with `rows`.
        name: The name of the table, and of its stream; that of the class or the function if it is empty.
    """
    label = name or getattr(shown, "name", "") or getattr(shown, "__name__", repr(shown))
    return PublishedTable(shown, label, caller_place())
