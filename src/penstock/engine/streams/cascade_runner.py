"""Runs cascades: the requests and the workflow steps that a log record causes.

A cascade takes its requests first, one after the other, and then its workflow steps. Both queues are first in,
first out, and run until they are empty before the next record is taken. One consumer that takes one atom is one
step: a workflow runs the atom through its tasks, a splitter divides it, a sequencer forwards it. The questions that
a step sends to a portal are one atom for the replying task; its answers are one atom for each asking task. A step is
a transaction: it commits whole, and then its atoms are queued for their consumers, in the order of their deployment;
or it leaves nothing. A cascade that takes more requests or more steps than its limit is cut: the rest is stored, and
a later record continues it.

No workflow step reads or writes an entity, and no request reads or writes a task. So it makes no difference whether
the workflow steps of a record run after its requests, or after all requests of its epoch: `run_requests` and
`run_steps` are two passes.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Final, TypeVar

import msgspec

from penstock.base.ids import EntityKey, RequestId
from penstock.engine.execute import Executor, Outcome
from penstock.engine.limits import Limits
from penstock.engine.streams.cascade import (
    Cascade,
    CompletedRequest,
    Delivered,
    Step,
    cascade_of,
    size_of,
)
from penstock.engine.streams.cascade_steps import CascadeSteps
from penstock.engine.streams.cascade_time import CascadeTime
from penstock.engine.streams.derived_ids import (
    MARK,
    cascade_id,
    continuation_id,
    ended_root,
    is_question_id,
    step_id,
)
from penstock.engine.streams.generator_positions import GeneratorPositions
from penstock.engine.streams.step_runner import Writes
from penstock.engine.streams.stored_cascade import (
    REQUESTS_CODEC,
    Codec,
    SentBody,
    StoredQueue,
    steps_codec,
)
from penstock.engine.streams.system_rows import REQUESTS, STEPS, former_rest_key
from penstock.errors import Internal, LimitExceeded
from penstock.model.application import App
from penstock.model.context import Read
from penstock.model.request import NOT_CUT, Cut, Failure, encode_continuation, encode_failure

QUEUE: Final = -1
"""In place of the number of a step: its cascade's queue is read or stored."""

T = TypeVar("T")
_encode: Final = msgspec.msgpack.Encoder().encode


def _let_run(_number: int) -> None:
    """Refuse no part of a cascade."""


def _read_nothing(_key: EntityKey) -> bytes | None:
    """Read an empty state."""
    return None


class CascadeRunner(CascadeSteps):
    """Runs cascades, one step after the other, over one state.

    Attributes:
        before_request: Takes the number of each sent request in its cascade, from 1, before it runs. If it returns a
            failure, the request does not run, and fails so.
        before_step: Takes the number of each step in its cascade, likewise; 0 before abandoned handlers end, and
            `QUEUE` before the queue of steps is read or stored: after a failure, the queue is dropped.
        time: Says when a cascade is cut because of its time; None where no clock decides.
        cuts: The recorded cuts of the cascades that run again, by the id of the record that continues each.
        decided: The outcomes of sent requests and of steps that do not run, by their ids; for a replay.
    """

    def __init__(  # noqa: PLR0913 -- the ways to the state are separate on purpose
        self,
        app: App,
        executor: Executor,
        read: Read,
        keys: Callable[[str], list[EntityKey]],
        apply: Callable[[Writes], None],
        limits: Limits,
        *,
        durable_waits: bool = False,
    ) -> None:
        """Begin without waiting handlers.

        Args:
            keys: Returns the stored keys that begin with a prefix, in order.
            apply: Takes the writes of a step, which later steps read.
            durable_waits: Store the waiting handlers after each step, and not only at the end of a record.
        """
        super().__init__(app, executor, read, keys, apply, limits.output_bytes)
        self._executor = executor
        self._read = read
        self._apply = apply
        self._limits = limits
        self._durable_waits = durable_waits
        self.before_request: Callable[[int], Failure | None] = _let_run
        self.before_step: Callable[[int], Failure | None] = _let_run
        self.decided: Mapping[RequestId, Outcome] = {}
        self.time: CascadeTime | None = None
        self.cuts: Mapping[RequestId, Cut] = {}
        self._steps_codec = steps_codec(app.topology)
        self._generators = GeneratorPositions(app, read, apply)
        executor.continued = self._result_of

    def run_requests(
        self, root: RequestId, body: bytes, time_us: int, outcome: Outcome
    ) -> Cascade | None:
        """Run the requests that a record has sent, and those that they send.

        Args:
            outcome: How the request ended. A continuation ends with an error only if it was cancelled or set aside;
                then the rest of its cascade is dropped.

        Returns:
            The cascade, for `run_steps`; None if the record causes nothing.
        """
        cascade = cascade_of(root, body, time_us)
        if not (outcome.outbox or cascade.has_steps):
            return None
        cascade.send(outcome)
        rest = self._rest(cascade, REQUESTS_CODEC) if cascade.continues else None
        if rest is not None:
            cascade.requests.extendleft(
                reversed(self._former_rest(root, REQUESTS_CODEC, outcome.error))
            )
        if rest is not None and self._is_over(root, outcome.error):
            self._apply(rest.dropped())
        elif cascade.requests or rest is not None:
            self._run_sent(cascade, outcome, rest)
        return cascade

    def _run_sent(
        self, cascade: Cascade, outcome: Outcome, rest: StoredQueue[SentBody] | None
    ) -> None:
        """Run the requests of a cascade: those in its pages, if it has a rest, and those that the record has sent."""
        room, queue = self._executor.room, cascade.requests
        room.clear()
        load = None
        if rest is not None:
            stored = self._rest(cascade, self._steps_codec)
            room.steps, room.step_bytes = stored.count, stored.size
            room.requests, room.request_bytes = rest.count, rest.size
            load = partial(self._load_requests, queue, rest)
        room.take(outcome.outbox)
        ran = 0
        for ran in self._turns(queue, load, self._most(cascade).requests):
            request_id, sent = queue.popleft()
            room.remove(sent)
            result = self.decided.get(request_id) or self._run_request(
                request_id, sent, cascade.time_us, ran
            )
            self._apply(result.writes)
            cascade.completed.append(CompletedRequest(request_id, sent, result))
            cascade.send(result)
            if result.outbox:
                room.take(result.outbox)
        room.clear()
        self.before_request(0)  # the rest is work for the record itself
        if queue:
            cascade.cut_at(Cut(ran, cascade.cut.steps))
        if queue or rest is not None:
            self._apply((rest or self._rest(cascade, REQUESTS_CODEC)).rest(queue))

    def _load_requests(self, queue: deque[SentBody], rest: StoredQueue[SentBody]) -> None:
        """Queue the requests of the next page, if it is their turn."""
        rest.taken()
        if not rest.is_empty:
            self.before_request(0)
            rest.load(queue)

    def _run_request(
        self, request_id: RequestId, body: bytes, time_us: int, number: int
    ) -> Outcome:
        """Run a sent request with its number in the cascade, unless it must not run."""
        failure = self.before_request(number)
        if failure is not None:
            return Outcome(failure.code, encode_failure(failure), (), {})
        return self._executor.run(request_id, body, time_us)

    def _turns(
        self, queue: Collection[object], load: Callable[[], object] | None, most: int | None
    ) -> Iterator[int]:
        """Count the requests or steps of a cascade from 1, until none is left or the cascade is cut.

        Args:
            queue: The next requests or steps; the caller removes the first one in each turn.
            load: Adds those of the next page, if it is their turn; None for a cascade that has no pages.
            most: The recorded number of turns; None: as many as limits and time allow.
        """
        time = self.time
        for ran in range(most or self._limits.cascade_steps):
            if load is not None:
                load()
            if not queue or (ran and time is not None and self._is_cut_by(time, ran)):
                return
            yield ran + 1
        if load is not None:
            load()

    def run_steps(self, cascade: Cascade, failure: Failure | None, reply: bytes) -> None:
        """Run the workflow steps of a cascade, after its requests.

        Args:
            cascade: The cascade; `published` has the atoms of its requests.
            failure: The failure of the record's request, or None; all steps of a record that was set aside fail.
        """
        is_set_aside = cascade.continues or cascade.catch_up is not None
        is_set_aside = is_set_aside or (failure is not None and failure.code == Internal.code)
        refusal = failure if is_set_aside else None
        self.step_runner.refusal = refusal
        self.step_runner.decided = self.decided
        self._generators.note(cascade)
        rest = self._begin(cascade, failure, reply, refusal)

        load = None if rest is None else partial(self._load, cascade, rest)
        before = cascade.taken
        for _ in self._turns(cascade.queue, load, self._most(cascade).steps):
            cascade.taken += 1
            self.step_runner.refusal = refusal or self.before_step(cascade.taken)
            self._take(cascade, cascade.pop())
            if self._durable_waits:
                self._store_waits(cascade)
        if not self._waits.is_forgotten:
            self.before_step(0)
            self._store_waits(cascade)
        if cascade.queue:
            ran = cascade.taken - before
            self._cut_steps(cascade, ran, rest or self._rest(cascade, self._steps_codec))
        elif rest is not None:
            self._apply(rest.rest(()))

    def _cut_steps(self, cascade: Cascade, ran: int, rest: StoredQueue[Step]) -> None:
        """Store the rest of the workflow steps for a later record."""
        if self._drops_steps(cascade):
            self._apply(rest.dropped())
            cascade.queue.clear()
            return
        cascade.cut_at(Cut(cascade.cut.requests, ran))
        self._apply(rest.rest(cascade.queue))

    def _load(self, cascade: Cascade, rest: StoredQueue[Step]) -> int:
        """Queue the steps of the next page, if it is their turn; return their number."""
        rest.taken()
        if rest.is_empty:
            return 0
        self.before_step(QUEUE)
        loaded = rest.load(cascade.queue)
        cascade.queue_bytes += sum(map(size_of, islice(cascade.queue, loaded)))
        cascade.stored_steps, cascade.stored_bytes = rest.count, rest.size
        return loaded

    def _rest(self, cascade: Cascade, codec: Codec[T]) -> StoredQueue[T]:
        """Return the stored queue of a cascade, or of the cascade that the record ends."""
        ended = ended_root(cascade.root) if cascade.continues else None
        read = self._read if cascade.continues else _read_nothing  # a new cascade has no rest
        return StoredQueue(codec, cascade_id(ended or cascade.root), read)

    @staticmethod
    def _is_over(root: RequestId, failure: object) -> bool:
        """Say whether the rest of the cascade of a continuation is dropped."""
        return failure is not None or ended_root(root) is not None

    def _most(self, cascade: Cascade) -> Cut:
        """Return the recorded cut of a cascade, if it runs again."""
        return self.cuts.get(continuation_id(cascade.root), NOT_CUT) if self.cuts else NOT_CUT

    def _ends_piece(self, following: RequestId, ran: int) -> bool:
        """Say whether a catch-up record ends after so many atoms; `following` is the id of the next one."""
        most = self.cuts.get(following, NOT_CUT).steps
        if most is not None:
            return ran == most
        return ran > 0 and self.time is not None and self._is_cut_by(self.time, ran)

    @staticmethod
    def _is_cut_by(time: CascadeTime, ran: int) -> bool:
        """Say whether a cascade is cut after so many requests or steps; the first of them always runs."""
        if ran == 1:
            time.begin()
            return False
        if not time.is_over():
            return False
        time.cut()
        return True

    def _drops_steps(self, cascade: Cascade) -> bool:
        """Say whether the worker died twice over the queue of steps of a cascade; then the queue is dropped."""
        name = step_id(cascade.root, 0)
        outcome = self.decided.get(name)
        if outcome is None:
            failure = self.before_step(QUEUE)
            if failure is None:
                return False
            outcome = Outcome(failure.code, encode_failure(failure), (), {})
        if all(done.request_id != name for done in cascade.completed):
            cascade.completed.append(CompletedRequest(name, encode_continuation(), outcome))
        return True

    def _begin(
        self, cascade: Cascade, failure: Failure | None, reply: bytes, refusal: Failure | None
    ) -> StoredQueue[Step] | None:
        """Queue the first steps of a cascade: an answer to a handler, the rest of a cut cascade, and the atoms.

        Args:
            failure: The failure of the record's request, or None.
            refusal: The failure of all steps, none of which runs; None where they run.

        Returns:
            The rest of the cascade that the record continues; None for a record that continues nothing.
        """
        root = cascade.root
        if MARK not in root:  # nothing of an earlier record depends on it
            self._queue_published(cascade)
            return None
        arrived = self._waits.take_arrived(root, reply, failure) if is_question_id(root) else None
        if arrived is not None:
            asker, answer = arrived
            answer = self.personal.protected(answer, cascade.subject)
            cascade.push(Delivered(asker.workflow, asker.task, (answer,)))
        rest = self._resumed(cascade, refusal) if cascade.continues else None
        self._queue_published(cascade)
        if cascade.catch_up is not None:
            for late in self._late.take(cascade, cascade.catch_up, self._ends_piece):
                cascade.taken += 1
                self.step_runner.refusal = refusal or self.before_step(cascade.taken)
                self._deliver(cascade, late, late.subscriber)
        if cascade.continues:
            for stream, step, failed in self.paused.resume(cascade):
                self._set_step_aside(cascade, stream, step, failed)
        return rest

    def _result_of(self, root: RequestId) -> bytes:
        """Return the result of a record that continues earlier work; one that ends a cascade has the numbers.

        Raises:
            LimitExceeded: An earlier Penstock has stored the rest of the cascade whole, and it is too large.
        """
        ended = ended_root(root)
        if ended is not None:
            heads = (
                StoredQueue(codec, cascade_id(ended), self._read)
                for codec in (REQUESTS_CODEC, self._steps_codec)
            )
            requests, steps = (head.count for head in heads)
            return _encode({"requests": requests, "steps": steps})
        self._check_former_rest(root)
        return _encode(None)

    def _check_former_rest(self, root: RequestId) -> None:
        """Refuse to continue a cascade whose rest an earlier Penstock has stored whole, if it is too large.

        Raises:
            LimitExceeded: It is.
        """
        size_max = self._limits.cascade_queue_bytes
        for name in (REQUESTS, STEPS) if cascade_id(root) != root else ():
            row = self._read(former_rest_key(name, root))
            if row is not None and len(row) > size_max:
                raise LimitExceeded(
                    f"the rest of the cascade takes {len(row)} bytes, more than cascade_queue_bytes "
                    f"= {size_max}; it is dropped"
                )

    def _resumed(self, cascade: Cascade, refusal: Failure | None) -> StoredQueue[Step]:
        """Return the stored steps of the cascade that a record continues; they are dropped if it was set aside."""
        rest = self._rest(cascade, self._steps_codec)
        cascade.push_all(self._former_rest(cascade.root, self._steps_codec, refusal))
        if self._is_over(cascade.root, refusal) or self._drops_steps(cascade):
            self._apply(rest.dropped())
        cascade.stored_steps, cascade.stored_bytes = rest.count, rest.size
        return rest

    def _former_rest(self, root: RequestId, codec: Codec[T], failure: object) -> list[T]:
        """Remove and return the queue that an earlier Penstock has stored whole; nothing of it after a failure."""
        if cascade_id(root) == root:
            return []
        key = former_rest_key(codec.name, root)
        if failure is not None:
            self._apply({key: None})  # unread: it may be the reason of the failure
            return []
        row = self._read(key)
        if row is None:
            return []
        self._apply({key: None})
        return codec.decode(row)

    def _queue_published(self, cascade: Cascade) -> None:
        """Queue the steps of the atoms of requests."""
        for atom in cascade.published:
            self._queue(cascade, atom.stream, atom.events)

    def _store_waits(self, cascade: Cascade) -> None:
        """Write the waiting handlers into rows, and forget them."""
        if not self._waits.is_forgotten:
            self._apply(self._waits.store())
            self.step_runner.close_abandoned(cascade)
