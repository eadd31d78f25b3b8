"""The rest of a cascade that was cut, as rows of the state, until the record that continues it.

The requests and the workflow steps that are left are in rows of their own, because requests run in the first pass of
an epoch, and workflow steps in the second. A step names its consumer, so that it finds the consumer in another version
of the application. A step whose consumer is gone is dropped; a question whose portal is gone fails.
"""

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import msgspec

from penstock.base.ids import EntityKey, RequestId
from penstock.engine.streams.cascade import Delivered, Delivery, Inquiry, Step
from penstock.engine.streams.lost_work import failed_answers
from penstock.engine.streams.system_rows import REQUESTS, STEPS, system_key
from penstock.engine.streams.waiting import Answer, PortalQuestion
from penstock.errors import UserError
from penstock.model.request import Failure
from penstock.model.streams.flow import Workflow
from penstock.model.streams.topology import Subscriber, Topology


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


def encode_steps(steps: Iterable[Step]) -> bytes:
    """Return workflow steps as a row."""
    return _encode([_stored(step) for step in steps])


def decode_steps(row: bytes, topology: Topology) -> list[Step]:
    """Read the row of `encode_steps`, perhaps of an earlier version of the application."""
    return [step for stored in _decode_steps(row) for step in _restored(stored, topology)]


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
            if task in topology.tasks:
                yield Delivered(workflow, task, answers)


def _no_portal(portal: str) -> Failure:
    return Failure(
        UserError.code, UserError.__name__, f"the application has no portal {portal} any more"
    )
