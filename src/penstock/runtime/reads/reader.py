"""A reader: runs `@readonly` calls over the stores at the newest committed epoch.

Promises strict reads: a question looks up the newest epoch of the journal after it has arrived, so its
calls see every change whose reply any caller had before. All calls of a question see one state. The
outcome of a call equals the outcome of a request that the log has directly after that epoch. Nothing
is written: no log record, no reply in the journal, no change of state.

Handlers run in this process within the limits of a transaction. A handler may still end the process,
so a reader that serves other processes is a process of its own (`nursery`).
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch, RequestId
from penstock.engine.execute import Executor, Limits, Outcome
from penstock.engine.failure import exceeded
from penstock.engine.rows import ItemsOf, RowsWanted, find_rows
from penstock.engine.task import Task
from penstock.errors import (
    Corrupt,
    LimitExceeded,
    PenstockError,
    ReadonlyViolation,
    RecordTooLarge,
    RequestError,
    StateUnavailable,
)
from penstock.files.roots import journal_root
from penstock.journal.delta import DeltaJournal
from penstock.journal.deployments import NAME, Deployment, Deployments, deployment_at
from penstock.log.clock import time_after
from penstock.model.application import App
from penstock.model.context import Read
from penstock.model.index import name_in, prefix_of
from penstock.model.reply import Reply, failure_of, raised_by
from penstock.model.request import encode_failure
from penstock.process.data_directory import DataDirectory
from penstock.process.guard import Guard
from penstock.runtime.reads.arguments import SizeLimits, encoded_call
from penstock.runtime.reads.messages import (
    Encoded,
    Encoding,
    Failed,
    Outcomes,
    Question,
    ReadCall,
    ReadOutcome,
    Started,
    Upcasting,
    reply_of,
)

ATTEMPTS: Final = 20
"""A question begins again if a driver commits the next epoch meanwhile; at most this often."""

_PURPOSE: Final = b"penstock reads"


class _State(NamedTuple):
    """The state that answers a question.

    Attributes:
        time_us: The time of its commit, in microseconds since the Unix epoch.
        deployment: The name of the deployment that executes the next epoch, if its commit has it.
        get: Returns the encoded attributes of an entity.
        items_of: Yields the entities of a class, in order.
    """

    epoch: Epoch
    time_us: int
    deployment: str
    get: Read
    items_of: ItemsOf


class _UsableIndexes:
    """Refuses lookups by an index whose rows are not those of the application: other code keeps the index, or none does."""

    def __init__(self, data: Path, app: App) -> None:
        self._app = app
        self._deployments = Deployments(journal_root(data))
        self._stamp: object = None
        self._every: tuple[Deployment, ...] = ()
        self._epoch = BEFORE_FIRST
        self._named = ""
        self._unusable: dict[str, str] = {}
        self.refusal = ""

    def guarded(self, state: _State) -> Read:
        """Return a function that reads a state, and raises `StateUnavailable` for a row of such an index."""
        get, epoch = state.get, state.epoch
        if self._app.indexes and epoch > self._epoch:
            # A commit that names the known deployment has the same indexes, and a store is paid for each look.
            if not state.deployment or state.deployment != self._named:
                self._look(epoch)
            self._epoch, self._named = epoch, state.deployment
        unusable, self.refusal = self._unusable, ""
        if not unusable:
            return get

        def checked(key: EntityKey) -> bytes | None:
            for prefix, name in unusable.items():
                if key.startswith(prefix):
                    self.refusal = (
                        f"the index {name} is not that of the code in force: deploy this code, or send the call again when this "
                        "process has loaded the deployment"
                    )
                    raise StateUnavailable(self.refusal)
            return get(key)

        return checked

    def _look(self, epoch: Epoch) -> None:
        stamp = self._deployments.root.stamp(NAME)
        if stamp != self._stamp:
            self._every = self._deployments.every()
            self._stamp = stamp
        # The epoch before the first one of a deployment changes the indexes.
        in_force = deployment_at(self._every, Epoch(epoch + 1))
        # Nothing is recorded of programs that belong to Penstock.
        there = self._app.indexes if in_force is None else in_force.indexes
        wrong = self._app.indexes.items() - there.items()
        self._unusable = {prefix_of(place): name_in(place) for place, _ in wrong}


class CallReader:
    """Answers questions about one application, one at a time."""

    def __init__(self, app: App, data: Path, limits: Limits) -> None:
        """Open the journal; the stores are opened when they are needed.

        Raises:
            PenstockError: The journal cannot be opened with this application.
        """
        self._app = app
        self._limits = limits
        self._journal: DeltaJournal = DataDirectory(data).open_journal(app)
        self._stores = DataDirectory(data).open_stores(self._journal)
        # Random values of a read tell nothing about those of a request with the same id.
        self._secret = blake2b(_PURPOSE, key=self._journal.secret).digest()
        self._usable_indexes = _UsableIndexes(data, app)
        self._get: Read = _nothing
        self._items_of: ItemsOf = _no_items
        self._task = self._new_task()

    def close(self) -> None:
        """Close stores and journal."""
        self._stores.close()
        self._journal.close()

    def answer(self, question: Question) -> Iterator[Started | Outcomes | Failed]:
        """Yield the messages that answer a question."""
        try:
            yield from self._answer(question)
        except PenstockError as error:
            yield Failed(failure_of(error))
        except OSError as error:  # of journal and stores; those of handlers are outcomes
            yield Failed(failure_of(StateUnavailable(str(error))))

    def reply(self, call: ReadCall) -> Reply:
        """Run one call and return its reply, which no log has."""
        match list(self.answer(Question([call]))):
            case [*_, Started(epoch), Outcomes([outcome])]:
                return reply_of(epoch, outcome)
            case [*_, Failed(failure)]:
                raise raised_by(failure)
            case messages:
                raise AssertionError(f"no answer ends with {messages}")

    def _answer(self, question: Question) -> Iterator[Started | Outcomes]:
        failure: PenstockError | None = None
        are_sound = False
        for _ in range(ATTEMPTS):
            try:
                with self._newest() as state:
                    yield Started(state.epoch)
                    self._get = self._usable_indexes.guarded(state)
                    self._items_of = state.items_of
                    now_us = time_after(state.time_us)
                    yield from self._run(question, now_us)
                    return
            except StateUnavailable as error:  # usually a driver has committed meanwhile
                failure = error
            except Corrupt as error:
                if are_sound:
                    raise  # what the stores have been built from is damaged
                failure = error
                # It deletes damaged stores; the next attempt rebuilds them.
                are_sound = not self._stores.examine()
            self._task = self._new_task()  # the former one keeps the error
        why = self._usable_indexes.refusal or "no epoch could be read"
        raise StateUnavailable(why) from failure

    @contextmanager
    def _newest(self) -> Iterator[_State]:
        """Lend the state at the newest epoch of the journal."""
        last = self._journal.last()
        if last is None:
            yield _State(BEFORE_FIRST, 0, "", _nothing, _no_items)
            return
        self._stores.follow(last)
        with self._stores.at(last.epoch) as stores:
            yield _State(last.epoch, last.time_us, last.deployment, stores.get, stores.items_of)

    def _run(self, question: Question, now_us: int) -> Iterator[Outcomes]:
        began_s = time.monotonic()
        outcomes: list[ReadOutcome] = []
        size = 0
        with Guard(self._task.executor, self._limits) as guard:
            for index, call in enumerate(guard.each(question.calls)):
                if index and time.monotonic() - began_s > self._limits.wall_ms / 1_000:
                    raise LimitExceeded(
                        f"the calls took longer than wall_ms = {self._limits.wall_ms} together, "
                        f"{index} of {len(question.calls)} were done; send fewer at once"
                    )
                outcome = self._outcome(call, now_us)
                size += len(outcome.data)
                if size > self._limits.output_bytes:
                    raise RecordTooLarge(
                        f"the results take more than output_bytes = {self._limits.output_bytes} "
                        "together; send fewer calls at once"
                    )
                if question.is_careful:
                    yield Outcomes([outcome])
                else:
                    outcomes.append(outcome)
        if outcomes:
            yield Outcomes(outcomes)

    def _outcome(self, call: ReadCall, now_us: int) -> ReadOutcome:
        """Run one call."""
        if call.refusal:
            return ReadOutcome(LimitExceeded.code, encode_failure(exceeded(call.refusal)))
        if call.rows is not None:
            rows = self._rows(call.request_id, call.rows, now_us)
            return ReadOutcome(rows.error, rows.reply)
        outcome = self._task.run(0, call.request_id, call.body, now_us)
        if outcome is None:
            raise StateUnavailable(self._usable_indexes.refusal or "an entity could not be read")
        if outcome.writes:
            changed = next(iter(outcome.writes))
            raise ReadonlyViolation(
                f"the handler is not @readonly in the code of this process, and changed {changed}"
            )
        return ReadOutcome(outcome.error, outcome.reply)

    def _rows(self, request_id: RequestId, wanted: RowsWanted, now_us: int) -> Outcome:
        """Return the outcome of a question for rows."""

        def work(executor: Executor, read: Read) -> Outcome:
            return find_rows(self._app, executor, request_id, now_us, wanted, read, self._items_of)

        return self._task.look(work)

    def _new_task(self) -> Task:
        task = Task(self._app, self._read, self._limits, tracked=False)
        task.executor.secret = self._secret
        return task

    def _read(self, key: EntityKey) -> bytes | None:
        return self._get(key)


def _nothing(_key: EntityKey) -> bytes | None:
    return None


def _no_items(_prefix: str, _after: str) -> tuple[()]:
    return ()


def encoded(app: App, sizes: SizeLimits, question: Encoding | Upcasting) -> Encoded | Failed:
    """Encode a call, or upcast a row, whatever code of the application raises meanwhile.

    Args:
        question: The call, or the row.
    """
    try:
        if isinstance(question, Upcasting):
            entity_type = app.entity(question.entity)
            return Encoded(entity_type.present(entity_type.key_at(question.key), question.row))
        return Encoded(*encoded_call(app, sizes, question.target, question.source))
    except PenstockError as error:
        return Failed(failure_of(error))
    except BaseException as raised:  # noqa: BLE001 -- code of an argument's class may raise any exception
        why = f"the code of a class raised {type(raised).__name__}, which stops nothing here"
        return Failed(failure_of(RequestError(why)))
