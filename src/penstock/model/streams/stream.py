"""Streams: named, totally ordered sequences of atoms.

An atom is the finite list of events that a transaction, an append or a step publishes on a stream. A
consumer takes an atom whole. `stream(…)` declares a stream that takes appends from outside and the events of
handlers; workflows, splitters and sequencers publish streams of their own.
"""

import re
from collections.abc import Sequence
from types import UnionType
from typing import Any, Final, Generic, TypeVar, overload

from penstock.base.constraint import without_constraints
from penstock.base.schema import complaints_of, name_of
from penstock.errors import DefinitionError, OutsideTransaction, UserError
from penstock.model.context import Transaction, active
from penstock.model.declaration import caller_place
from penstock.model.running_step import Emission
from penstock.model.streams.event_type import EventType
from penstock.model.streams.failed_atom import FailedAtom, FailedAtomType

T = TypeVar("T")

Atom = tuple[bytes, ...]
"""The encoded events of an atom, in order."""

NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


class Stream(Generic[T]):
    """A named sequence of atoms.

    Attributes:
        name: The name, unique among the streams of an application.
        annotation: The type of the events; `UNKNOWN` until the application is built.
        declared: The type as it was declared, with its constraints.
        where: `file:line` of the declaration.
        is_open: Whether appends from outside and `emit` may publish on it.
        is_captured: Whether a process takes its atoms from a database; see `change_stream`.
        event_type: Encodes and decodes the events; set when an application is built.
        limits: The limits on appends, as texts; see `penstock.limit`.
        origin: The stream itself, or the stream of another application that it stands for.
    """

    is_open = False
    is_captured = False
    limits: tuple[str, ...] = ()

    def __init__(self, name: str, annotation: Any, where: str) -> None:
        self.name = name
        self.declared = annotation
        self.annotation: Any = without_constraints(annotation)
        self.where = where
        self.event_type: EventType[T] | None = None
        self.origin: Stream[Any] = self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def bind(self, complaints: list[str]) -> None:
        """Fix the type of the events, or add a complaint."""
        declared = self.annotation if self.declared is UNKNOWN else self.declared
        wrong = complaints_of(declared)
        complaints += [f"{self.where}: stream {self.name}: {complaint}" for complaint in wrong]
        if not wrong:
            made: Any = FailedAtomType if self.annotation is FailedAtom else EventType
            self.event_type = made(f"stream {self.name}", declared)

    @property
    def events(self) -> EventType[T]:
        """The type of the events."""
        if self.event_type is None:
            raise UserError(
                f"{self.where}: stream {self.name} is not part of an application; {_named_in_app(self)}"
            )
        return self.event_type


class OpenStream(Stream[T]):
    """A stream that `stream(…)` declares."""

    is_open = True


@overload
def stream(name: str, events: type[T], *, limits: str | Sequence[str] = ()) -> OpenStream[T]: ...
@overload
def stream(
    name: str, events: UnionType, *, limits: str | Sequence[str] = ()
) -> OpenStream[Any]: ...
def stream(name: str, events: Any, *, limits: str | Sequence[str] = ()) -> OpenStream[Any]:
    """Declare a stream that takes appends from outside and the events of `emit`.

    Args:
        name: Letters, digits, `-` and `_`.
        events: The type of the events: any type that an attribute of an entity can have.
        limits: The most appends that gateways admit, in the words of `@limit`: `"50/s"`, `"20/s per principal"`.
    """
    declared: OpenStream[Any] = OpenStream(name, events, caller_place())
    declared.limits = (limits,) if isinstance(limits, str) else tuple(limits)
    return declared


def emit(target: Stream[T], event: T) -> None:
    """Publish an event when the running transaction takes effect.

    All events that a transaction publishes on a stream are one atom. A transaction that is undone, or a
    savepoint that is undone, publishes nothing. The event is copied at once.

    Raises:
        UserError: The stream takes no events of handlers, or is not part of the application.
        Unencodable: The event does not fit the type of the stream.
        OutsideTransaction: No transaction runs.
    """
    txn = active()
    if txn is None:
        raise OutsideTransaction(
            "events are emitted inside a transaction; from outside, append them to the stream"
        )
    if not getattr(target, "is_open", False):
        given: object = target
        name = (
            f" It takes the stream itself, not its name {target!r}"
            if isinstance(given, str)
            else ""
        )
        raise UserError(
            f"{target!r} takes no events of handlers; declare sales = stream('sales', Sale), and write emit(sales, event).{name}"
        )
    publish(txn, target, (target.events.encode(event),))


def _named_in_app(target: Stream[Any]) -> str:
    return f"App must name it among its members: App('name', …, the stream {target.name})"


def publish(txn: Transaction, target: Stream[Any], events: Atom) -> None:
    """Put encoded events into the outbox of a transaction."""
    if txn.outlet().topology.streams.get(target.name) is not target.origin:
        raise UserError(
            f"{target.where}: stream {target.name} is not part of this application; {_named_in_app(target)}"
        )
    txn.outbox.append(Emission(target.name, events))


class Unknown:
    """The type of events whose type nothing declares, such as the result of a lambda."""

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN: Final = Unknown()


def type_name(annotation: Any) -> str:
    """Return the name of a type for a message."""
    return "unknown" if annotation is UNKNOWN else name_of(annotation)


def check_source(source: object, what: str, where: str) -> None:
    """Refuse a source that is no stream.

    Args:
        source: The source of a workflow, a splitter, a sequencer or a request sink.
        what: The name of the consumer in the message: `workflow f`.
        where: `file:line` of the declaration.
    """
    if not isinstance(source, Stream):
        raise DefinitionError(
            [
                f"{where}: {what} takes its events from {source!r}, which is no stream; name a stream(…), a workflow "
                'that ends with .sink(…), or an output of a splitter, such as parity["even"]'
            ]
        )
