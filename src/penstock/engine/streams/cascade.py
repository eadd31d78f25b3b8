"""A cascade: everything that a log record causes, as queues of requests and of workflow steps.

`cascade_runner` runs it. This module has its parts as plain data. Those of each step are structs of msgspec, because
CPython makes these faster than named tuples.
"""

from collections import deque
from collections.abc import Iterable
from itertools import chain
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

import msgspec

from penstock.base.ids import RequestId
from penstock.engine.execute import Outcome
from penstock.engine.streams.derived_ids import MARK, continuation_id, is_question_id, sent_id
from penstock.engine.streams.waiting import Answer, PortalQuestion
from penstock.model.catch_up import CatchUp, decode_catch_up, is_catch_up
from penstock.model.request import NOT_CUT, Cut, Failure, encode_continuation, is_continuation
from penstock.model.running_step import Emission
from penstock.model.sealed_value import subject_of_request
from penstock.model.streams.stream import Atom
from penstock.model.streams.topology import Subscriber
from penstock.model.table_scan import TableScan, decode_scan, is_scan

_data_of: Final = attrgetter("data")


class Delivery(msgspec.Struct, frozen=True):
    """A step: a consumer takes an atom of a stream."""

    subscriber: Subscriber
    stream: str
    atom: Atom


class Inquiry(msgspec.Struct, frozen=True):
    """A step: a task takes the questions to a portal that a step has sent."""

    portal: str
    questions: tuple[PortalQuestion, ...]


class Delivered(msgspec.Struct, frozen=True):
    """A step: a task takes the answers that a step has given."""

    workflow: str
    task: str
    answers: tuple[Answer, ...]


class NextInLine(msgspec.Struct, frozen=True):
    """A step: a task takes the first event or question in the line of a key, given by its text."""

    task: str
    key: str


Step: TypeAlias = Delivery | Inquiry | Delivered | NextInLine
"""A step of a workflow, a splitter, a sequencer or a request sink."""


class PublishedAtom(msgspec.Struct, frozen=True, array_like=True):
    """An atom that a step has published: the stream, the number of the step, the encoded events."""

    stream: str
    step: int
    events: Atom


class CompletedRequest(NamedTuple):
    """A request that a cascade has processed."""

    request_id: RequestId
    body: bytes
    outcome: Outcome


class LaterRecord(NamedTuple):
    """A request for the log: its id, its body, and its delay in microseconds."""

    request_id: RequestId
    body: bytes
    delay_us: int


class Cascade(msgspec.Struct):
    """The work that a log record has caused, and its results.

    Attributes:
        time_us: The time of the record, in microseconds since the Unix epoch.
        continues: Whether the record continues a cascade that was cut.
        catch_up: The piece that the record gives to a late workflow, if it is such a record.
        scan: The piece of a scan for published tables that the record is, if it is one.
        subject: The person whom the record concerns, if a handler waits for its reply; else None.
        taken: The number of workflow steps that have run.
        sent: The number of requests that its requests have sent.
        requests: The next requests, which run before all workflow steps: their ids and bodies.
        queue: The next workflow steps.
        published: The atoms that it has published; those of its requests are of step 0, and come first.
        queue_bytes: The bytes of the next workflow steps.
        stored_steps: The number of workflow steps behind them, in pages of the state.
        stored_bytes: The bytes of these steps.
        cut: The place where it was cut; None if it was not.
    """

    root: RequestId
    time_us: int
    continues: bool = False
    catch_up: CatchUp | None = None
    scan: TableScan | None = None
    subject: str | None = None
    taken: int = 0
    sent: int = 0
    requests: deque[tuple[RequestId, bytes]] = msgspec.field(default_factory=deque)
    queue: deque[Step] = msgspec.field(default_factory=deque)
    published: list[PublishedAtom] = []
    completed: list[CompletedRequest] = []
    later: list[LaterRecord] = []
    queue_bytes: int = 0
    stored_steps: int = 0
    stored_bytes: int = 0
    cut: Cut = NOT_CUT

    @property
    def has_steps(self) -> bool:
        """Whether it may have workflow steps, after its requests have run."""
        return (
            bool(self.published)
            or self.continues
            or self.catch_up is not None
            or self.scan is not None
            or is_question_id(self.root)
        )

    def push(self, step: Step) -> None:
        """Queue a workflow step."""
        self.queue.append(step)
        self.queue_bytes += size_of(step)

    def push_all(self, steps: Iterable[Step]) -> None:
        """Queue workflow steps."""
        for step in steps:
            self.push(step)

    def pop(self) -> Step:
        """Remove and return the next workflow step."""
        step = self.queue.popleft()
        self.queue_bytes = self.queue_bytes - size_of(step) if self.queue else 0
        return step

    def cut_at(self, cut: Cut) -> None:
        """Let a later record continue it behind a place; a second call, for its other queue, changes this record."""
        self.cut = cut
        request_id = continuation_id(self.root)
        self.later = [record for record in self.later if record.request_id != request_id]
        self.later.append(LaterRecord(request_id, encode_continuation(cut), 0))

    def send(self, outcome: Outcome) -> None:
        """Take over the events and requests of a request; its events on one stream are one atom."""
        outbox = outcome.outbox
        if len(outbox) == 1 and type(outbox[0]) is Emission:  # nearly always
            self.published.append(PublishedAtom(outbox[0].stream, 0, outbox[0].events))
            return
        atoms: dict[str, list[Atom]] = {}
        for item in outbox:
            if isinstance(item, Emission):
                atoms.setdefault(item.stream, []).append(item.events)
                continue
            self.sent += 1
            request_id = sent_id(self.root, self.sent)
            if item.delay_us:
                self.later.append(LaterRecord(request_id, item.body, item.delay_us))
            else:
                self.requests.append((request_id, item.body))
        for stream, parts in atoms.items():
            whole = tuple(chain.from_iterable(parts)) if len(parts) > 1 else parts[0]
            self.published.append(PublishedAtom(stream, 0, whole))


def size_of(step: Step) -> int:
    """Return the bytes of the work of a workflow step."""
    if isinstance(step, Delivery):  # nearly always
        return sum(map(len, step.atom))
    if isinstance(step, Inquiry):
        return data_size(step.questions)
    if isinstance(step, Delivered):
        return data_size(step.answers)
    return len(step.key)


def data_size(items: Iterable[PortalQuestion | Answer]) -> int:
    """Return the bytes of questions or answers."""
    return sum(map(len, filter(None, map(_data_of, items))))


def failed_answers(questions: Iterable[PortalQuestion], failure: Failure) -> list[Delivered]:
    """Return a step for each asking task that answers its questions with a failure."""
    answers: dict[tuple[str, str], list[Answer]] = {}
    for question in questions:
        asker = (question.workflow, question.task)
        answers.setdefault(asker, []).append(Answer(question.id, question.handler, None, failure))
    return [Delivered(workflow, task, tuple(given)) for (workflow, task), given in answers.items()]


def cascade_of(root: RequestId, body: bytes, time_us: int) -> Cascade:
    """Return the cascade of a record, which has caused nothing yet."""
    if MARK not in root:
        return Cascade(root, time_us)
    catch_up = decode_catch_up(body) if is_catch_up(body) else None
    subject = subject_of_request(body) if is_question_id(root) else None
    scan = decode_scan(body) if is_scan(body) else None
    return Cascade(root, time_us, is_continuation(body), catch_up, scan, subject)
