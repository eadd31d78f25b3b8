"""The rest of a cascade that was cut, as rows of the state, until later records continue it.

The requests and the workflow steps that are left are in rows of their own, because requests run in the first pass of
an epoch, and workflow steps in the second. Each of these queues is a row with its head, and pages of bounded size: a
record reads the first pages, as far as it needs them, and appends pages for the work that it causes. A step names its consumer,
so that it finds the consumer in another version of the application. A step whose consumer is gone is dropped; a
question whose portal is gone fails.

`HeldSteps` are stored in the same form: those of a workflow that is paused, or that has missed earlier atoms.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from penstock.base.encoder import Encoder
from penstock.base.ids import EntityKey, RequestId
from penstock.engine.streams.cascade import (
    Delivered,
    Delivery,
    Inquiry,
    NextInLine,
    Step,
    failed_answers,
    size_of,
)
from penstock.engine.streams.derived_ids import cascade_id
from penstock.engine.streams.system_rows import REQUESTS, STEPS, system_key
from penstock.engine.streams.waiting import Answer, PortalQuestion
from penstock.errors import UserError
from penstock.model.context import Read
from penstock.model.request import Failure
from penstock.model.streams.flow import Workflow
from penstock.model.streams.topology import Subscriber, Topology

T = TypeVar("T")


class _Delivery(msgspec.Struct, frozen=True, array_like=True, tag="atom"):
    stream: str
    subscriber: str | int  # its name; in rows of an earlier Penstock, its place at the stream
    events: tuple[bytes, ...]


class _Inquiry(msgspec.Struct, frozen=True, array_like=True, tag="questions"):
    portal: str
    questions: tuple[PortalQuestion, ...]


class _Delivered(msgspec.Struct, frozen=True, array_like=True, tag="answers"):
    workflow: str
    task: str
    answers: tuple[Answer, ...]


class _NextInLine(msgspec.Struct, frozen=True, array_like=True, tag="next"):
    task: str
    key: str


_StoredStep: TypeAlias = _Delivery | _Inquiry | _Delivered | _NextInLine
_encode: Final = Encoder().encode
_decode_requests: Final = msgspec.msgpack.Decoder(list[tuple[str, bytes]]).decode
_decode_steps: Final = msgspec.msgpack.Decoder(list[_StoredStep]).decode


Apply = Callable[[dict[EntityKey, bytes | None]], None]
"""Takes changes of rows."""

SentBody: TypeAlias = tuple[RequestId, bytes]
"""A request that waits: its id, and its body."""


def encode_requests(requests: Iterable[SentBody]) -> bytes:
    """Return requests, ids and bodies, as a row."""
    return _encode(list(requests))


def decode_requests(row: bytes) -> list[SentBody]:
    """Read the row of `encode_requests`."""
    return [(RequestId(request_id), body) for request_id, body in _decode_requests(row)]


def encode_steps(steps: Iterable[Step]) -> bytes:
    """Return workflow steps as a row."""
    return _encode([_stored(step) for step in steps])


def decode_steps(row: bytes, topology: Topology) -> list[Step]:
    """Read the row of `encode_steps`, perhaps of an earlier version of the application."""
    return [step for stored in _decode_steps(row) for step in _restored(stored, topology)]


class HeldSteps:
    """The steps that workflows hold, each in a row of the state, by workflow and place."""

    def __init__(self, name: str, topology: Topology, read: Read, apply: Apply) -> None:
        self._name = name
        self._topology = topology
        self._read = read
        self._apply = apply

    def hold(self, flow: str, place: int, step: Step, key: EntityKey, progress: bytes) -> None:
        """Hold a step, and change the row with the progress of its workflow together with it."""
        self._apply({self._key(flow, place): encode_steps([step]), key: progress})

    def take(self, flow: str, place: int) -> list[Step] | None:
        """Remove a step and return it, or nothing if its consumer is gone; None if no step is at this place."""
        key = self._key(flow, place)
        row = self._read(key)
        if row is None:
            return None
        self._apply({key: None})
        return decode_steps(row, self._topology)

    def _key(self, flow: str, place: int) -> EntityKey:
        return system_key(self._name, f"{flow}/{place}")


def _name_of(subscriber: Subscriber) -> str:
    match subscriber:
        case Workflow():
            return f"workflow {subscriber.flow_name}"
        case _:
            return f"{type(subscriber).__name__} {subscriber.name}"


def _stored(step: Step) -> _StoredStep:
    match step:
        case Delivery(subscriber, stream, atom):
            return _Delivery(stream, _name_of(subscriber), atom)
        case Inquiry(portal, questions):
            return _Inquiry(portal, questions)
        case Delivered(workflow, task, answers):
            return _Delivered(workflow, task, answers)
        case NextInLine(task, key):
            return _NextInLine(task, key)


def _restored(step: _StoredStep, topology: Topology) -> Iterator[Step]:
    """Yield the step; other steps, or none, if the application has its consumer no more."""
    match step:
        case _Delivery(stream, name, events):
            for place, subscriber in enumerate(topology.subscribers.get(stream, ())):
                if name in (place, _name_of(subscriber)):
                    yield Delivery(subscriber, stream, events)
        case _Inquiry(portal, questions):
            if portal in topology.responders:
                yield Inquiry(portal, questions)
            else:
                yield from failed_answers(questions, _no_portal(portal))
        case _Delivered(workflow, task, answers):
            yield Delivered(workflow, task, answers)
        case _NextInLine(task, key):
            yield NextInLine(task, key)


def _no_portal(portal: str) -> Failure:
    return Failure(
        UserError.code, UserError.__name__, f"the application has no portal {portal} any more"
    )


PAGE_BYTES: Final = 128 << 10
"""A page ends with the entry that reaches this number of bytes."""

_ENTRY_BYTES: Final = 64  # of an entry, besides its data, roughly


class _Head(msgspec.Struct, array_like=True, frozen=True):
    """The head of a queue: the number of its first page, and that behind its last one; its entries, and their bytes."""

    first: int = 0
    end: int = 0
    count: int = 0
    size: int = 0


class _Page(msgspec.Struct, array_like=True, frozen=True):
    """A page of a queue: its entries, their number and their bytes."""

    count: int
    size: int
    entries: msgspec.Raw


_EMPTY: Final = _Head()
_decode_head: Final = msgspec.msgpack.Decoder(_Head).decode
_decode_page: Final = msgspec.msgpack.Decoder(_Page).decode


def rest_keys(root: RequestId) -> list[EntityKey]:
    """Return the keys of the rows that exist while a rest of a cascade waits."""
    cascade = cascade_id(root)
    return [system_key(name, cascade) for name in (REQUESTS, STEPS)]


class Codec(NamedTuple, Generic[T]):
    """How the entries of a queue are stored.

    Attributes:
        encode: Returns entries as bytes.
        decode: Reads them; a deployment meanwhile may have changed their number.
        size: Returns the bytes of an entry, for the limits of the queue.
    """

    name: str
    encode: Callable[[Iterable[T]], bytes]
    decode: Callable[[bytes], list[T]]
    size: Callable[[T], int]


REQUESTS_CODEC: Final = Codec[SentBody](
    REQUESTS, encode_requests, decode_requests, lambda request: len(request[1])
)


def steps_codec(topology: Topology) -> Codec[Step]:
    """Return how the workflow steps of an application are stored."""
    return Codec(STEPS, encode_steps, lambda row: decode_steps(row, topology), size_of)


class StoredQueue(Generic[T]):
    """One queue of a cascade that was cut, of which the first entries run.

    Attributes:
        count: The number of entries in the pages that are left.
        size: Their bytes.
    """

    def __init__(self, codec: Codec[T], cascade: RequestId, read: Read) -> None:
        self._codec = codec
        self._cascade = cascade
        self._read = read
        row = read(system_key(codec.name, cascade))
        self._is_stored = row is not None
        head = _EMPTY if row is None else _decode_head(row)
        self._first, self._end, self.count, self.size = head.first, head.end, head.count, head.size
        self._begin = self._first
        self._loaded = 0

    @property
    def is_empty(self) -> bool:
        """Whether it has no page."""
        return self._first == self._end

    def load(self, queue: deque[T]) -> int:
        """Put the entries of the next page before the other entries of a queue, if it is their turn.

        Args:
            queue: The entries that are not in pages; those of the last page come first, until `taken` was called for
                each of them.

        Returns:
            Their number.
        """
        loaded = 0
        while not self._loaded and self._first < self._end:
            row = self._read(self._page_key(self._first))
            assert row is not None, "each page between the ends of a queue is stored"
            page = _decode_page(row)
            entries = self._codec.decode(bytes(page.entries))
            queue.extendleft(reversed(entries))
            self._first += 1
            self.count -= page.count
            self.size -= page.size
            self._loaded = loaded = len(entries)
        return loaded

    def taken(self) -> None:
        """Note that the first entry was taken."""
        self._loaded = max(0, self._loaded - 1)

    def rest(self, queue: Collection[T]) -> dict[EntityKey, bytes | None]:
        """Return the changes that store the entries that are left; the pages that were not loaded stay.

        Args:
            queue: The entries that are not in pages, as for `load`.
        """
        writes = self._removed(range(self._begin, self._first))
        entries = iter(queue)
        if self._loaded:  # the rest of the page becomes a page in the same place
            self._first -= 1
            self._store(writes, self._first, list(islice(entries, self._loaded)))
        page: list[T] = []
        page_bytes = 0
        for entry in entries:
            page.append(entry)
            page_bytes += self._codec.size(entry) + _ENTRY_BYTES
            if page_bytes >= PAGE_BYTES:
                self._store(writes, self._end, page)
                self._end += 1
                page, page_bytes = [], 0
        if page:
            self._store(writes, self._end, page)
            self._end += 1
        head = _Head(self._first, self._end, self.count, self.size)
        if not self.is_empty:
            writes[system_key(self._codec.name, self._cascade)] = _encode(head)
        elif self._is_stored:
            writes[system_key(self._codec.name, self._cascade)] = None
        return writes

    def dropped(self) -> dict[EntityKey, bytes | None]:
        """Return the changes that remove the queue, of which no page is read."""
        writes = self._removed(range(self._begin, self._end))
        if self._is_stored:
            writes[system_key(self._codec.name, self._cascade)] = None
        self._first = self._end
        self.count = self.size = self._loaded = 0
        return writes

    def _removed(self, pages: Iterable[int]) -> dict[EntityKey, bytes | None]:
        return {self._page_key(page): None for page in pages}

    def _store(self, writes: dict[EntityKey, bytes | None], number: int, entries: list[T]) -> None:
        size = sum(map(self._codec.size, entries))
        page = _Page(len(entries), size, msgspec.Raw(self._codec.encode(entries)))
        writes[self._page_key(number)] = _encode(page)
        self.count += len(entries)
        self.size += size

    def _page_key(self, page: int) -> EntityKey:
        return system_key(self._codec.name, f"{self._cascade}/{page}")
