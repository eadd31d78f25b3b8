"""The rest of a cascade that was cut, as rows of the state, until the record that continues it.

The requests and the workflow steps that are left are in rows of their own, because requests run in the first pass of
an epoch, and workflow steps in the second.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from penstock.base.ids import EntityKey, RequestId
from penstock.engine.streams.cascade import Delivered, Delivery, Inquiry, Step
from penstock.engine.streams.system_rows import REQUESTS, STEPS, system_key
from penstock.engine.streams.waiting import Answer, PortalQuestion
from penstock.model.streams.topology import Topology


class _Delivery(msgspec.Struct, frozen=True, array_like=True, tag="atom"):
    stream: str
    subscriber: int  # its place among the subscribers of the stream
    events: tuple[bytes, ...]


class _Inquiry(msgspec.Struct, frozen=True, array_like=True, tag="questions"):
    portal: str
    questions: tuple[PortalQuestion, ...]


class _Delivered(msgspec.Struct, frozen=True, array_like=True, tag="answers"):
    workflow: str
    task: str
    answers: tuple[Answer, ...]


_StoredStep: TypeAlias = _Delivery | _Inquiry | _Delivered
_encode: Final = msgspec.msgpack.Encoder().encode
_decode_requests: Final = msgspec.msgpack.Decoder(list[tuple[str, bytes]]).decode
_decode_steps: Final = msgspec.msgpack.Decoder(list[_StoredStep]).decode


def requests_key(continuation: RequestId) -> EntityKey:
    """Return the key of the row with the requests that a record continues with."""
    return system_key(REQUESTS, continuation)


def steps_key(continuation: RequestId) -> EntityKey:
    """Return the key of the row with the workflow steps that a record continues with."""
    return system_key(STEPS, continuation)


def encode_requests(requests: Iterable[tuple[RequestId, bytes]]) -> bytes:
    """Return requests, ids and bodies, as a row."""
    return _encode(list(requests))


def decode_requests(row: bytes) -> list[tuple[RequestId, bytes]]:
    """Read the row of `encode_requests`."""
    return [(RequestId(request_id), body) for request_id, body in _decode_requests(row)]


def encode_steps(steps: Iterable[Step], topology: Topology) -> bytes:
    """Return workflow steps as a row."""
    return _encode([_stored(step, topology) for step in steps])


def decode_steps(row: bytes, topology: Topology) -> list[Step]:
    """Read the row of `encode_steps`."""
    return [_restored(step, topology) for step in _decode_steps(row)]


def _stored(step: Step, topology: Topology) -> _StoredStep:
    match step:
        case Delivery(subscriber, stream, atom):
            subscribers = topology.subscribers[stream]
            place = next(place for place, other in enumerate(subscribers) if other is subscriber)
            return _Delivery(stream, place, atom)
        case Inquiry(portal, questions):
            return _Inquiry(portal, questions)
        case Delivered(workflow, task, answers):
            return _Delivered(workflow, task, answers)


def _restored(step: _StoredStep, topology: Topology) -> Step:
    match step:
        case _Delivery(stream, subscriber, events):
            return Delivery(topology.subscribers[stream][subscriber], stream, events)
        case _Inquiry(portal, questions):
            return Inquiry(portal, questions)
        case _Delivered(workflow, task, answers):
            return Delivered(workflow, task, answers)
