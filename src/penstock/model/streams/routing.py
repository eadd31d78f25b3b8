"""Splitters, sequencers and connections: they forward atoms between streams and workflows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, overload

from penstock.errors import DefinitionError
from penstock.model.declaration import caller_place
from penstock.model.streams.failed_atom import FailedAtom
from penstock.model.streams.interface import SequencerInterface
from penstock.model.streams.stream import Stream, check_source

T = TypeVar("T")


class Split(Stream[T]):
    """An output of a splitter; its name begins with that of the splitter."""

    def __init__(self, label: str, splitter: "Splitter[T]", where: str) -> None:
        super().__init__(f"{splitter.name}-{label}", splitter.source.annotation, where)
        self.splitter = splitter
        self.label = label


class Splitter(Generic[T]):
    """Divides each atom of a stream between several streams.

    An event goes to the first stream whose predicate is true, and to none if no predicate is. A stream without an
    event of an atom gets no atom.

    Attributes:
        source: The stream whose atoms it takes.
        predicates: The predicates, in the order of `streams`.
        failed: The stream of the atoms at which a predicate failed.
        where: `file:line` of the declaration.
    """

    def __init__(
        self,
        name: str,
        source: Stream[T],
        predicates: dict[str, Callable[[T], object]],
        where: str,
    ) -> None:
        self.name = name
        self.source = source
        self.where = where
        self.predicates = tuple(predicates.values())
        self.failed: Stream[FailedAtom] = Stream(f"{name}-failed", FailedAtom, where)
        self.streams = tuple(Split(split, self, where) for split in predicates)

    def __repr__(self) -> str:
        return f"<Splitter {self.name}>"

    def __getitem__(self, name: str) -> Split[T]:
        for split in self.streams:
            if split.label == name:
                return split
        known = ", ".join(split.label for split in self.streams)
        raise KeyError(f"splitter {self.name} has no stream {name!r}; it has {known}")


def splitter(name: str, source: Stream[T], /, **predicates: Callable[[T], object]) -> Splitter[T]:
    """Divide a stream between several streams.

    Of `parity = splitter("parity", numbers, even=is_even, odd=is_odd)`, `parity["even"]` is a stream, whose name is
    `parity-even`.

    Args:
        name: The name of the splitter.
        source: The stream to divide.
        predicates: A predicate for each output stream, by the name of the stream; the first match counts.
    """
    where = caller_place()
    check_source(source, f"splitter {name}", where)
    return Splitter(name, source, predicates, where)


class Sequencer(Stream[T]):
    """Forwards the atoms of several streams, whole and in the order of their arrival.

    It keeps the order of each input, and it drops empty atoms, so that cycles come to an end. Its inputs may be
    connected after its declaration: that is how workflows form a cycle.
    """

    def __init__(
        self, name: str, annotation: Any, inputs: tuple[Stream[T], ...], where: str
    ) -> None:
        super().__init__(name, annotation, where)
        self.inputs = inputs


def sequencer(name: str, events: type[T], /, *inputs: Stream[T]) -> Sequencer[T]:
    """Declare a sequencer.

    Args:
        name: The name of its stream.
        events: The type of the events.
        inputs: The streams that it forwards; `connect` adds more.
    """
    where = caller_place()
    for source in inputs:
        check_source(source, f"sequencer {name}", where)
    return Sequencer(name, events, inputs, where)


@dataclass(frozen=True, eq=False)
class Connection(Generic[T]):
    """A stream that a sequencer forwards; a member of an `App`."""

    source: Stream[T]
    target: Sequencer[T]
    where: str


def connect(source: Stream[T], target: Sequencer[T]) -> Connection[T]:
    """Let a sequencer forward a stream that is declared later.

    The connection is a member of an application, as in `App("x", connect(less, loop), …)`.
    """
    where = caller_place()
    if not isinstance(target, Sequencer | SequencerInterface):
        raise DefinitionError(
            [f"{where}: connect(source, target) has a target that is no sequencer: {target!r}"]
        )
    check_source(source, f"sequencer {target.name}", where)
    return Connection(source, target, where)


class RequestSink(Generic[T]):
    """Sends a request for each event of a stream, or for each atom; a member of an `App`.

    Attributes:
        name: The name of the stream, and that of the method.
        method: The method or function that the requests call.
        arguments: Returns the arguments of a request; those of a method begin with the reference.
        takes_atoms: Whether `arguments` takes the list of the events of an atom, and not a single event.
        failed: The stream of the atoms at which `arguments` failed.
        where: `file:line` of the declaration.
    """

    def __init__(
        self,
        source: Stream[T],
        method: Callable[..., Any],
        arguments: Callable[[Any], tuple[Any, ...]],
        where: str,
        *,
        takes_atoms: bool = False,
    ) -> None:
        self.name = f"{source.name}-{getattr(method, '__name__', 'call')}"
        self.source = source
        self.method = method
        self.arguments = arguments
        self.takes_atoms = takes_atoms
        self.where = where
        self.failed: Stream[FailedAtom] = Stream(f"{self.name}-failed", FailedAtom, where)

    def __repr__(self) -> str:
        return f"<RequestSink {self.name}>"


@overload
def call(
    source: Stream[T],
    method: Callable[..., Any],
    arguments: Callable[[T], tuple[Any, ...]],
    *,
    whole_atoms: Literal[False] = False,
) -> RequestSink[T]: ...


@overload
def call(
    source: Stream[T],
    method: Callable[..., Any],
    arguments: Callable[[list[T]], tuple[Any, ...]],
    *,
    whole_atoms: Literal[True],
) -> RequestSink[T]: ...


def call(
    source: Stream[T],
    method: Callable[..., Any],
    arguments: Callable[[Any], tuple[Any, ...]],
    *,
    whole_atoms: bool = False,
) -> RequestSink[T]:
    """Send a request for each event of a stream: a workflow's output calls entities.

    The requests are appended to the log, in the order of the events, when the atom is published. Each is a
    transaction of its own.

    Args:
        source: The stream, such as a workflow.
        method: The method, creation or function to call.
        arguments: Returns the arguments for an event, as in `lambda sale: (Item(sale.item), sale.amount)`.
        whole_atoms: Send one request for each atom instead, so that all its events are one transaction. `arguments` takes
            the list of the events. An atom without events sends nothing.
    """
    where = caller_place()
    check_source(source, "call", where)
    return RequestSink(source, method, arguments, where, takes_atoms=whole_atoms)
