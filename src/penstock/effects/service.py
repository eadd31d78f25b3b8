"""The effect process: it follows the journal, calls the effects that wait, and appends their outcomes to the log.

It holds no truth. The waiting effects are rows of the state, and the engine accepts an outcome only while its row waits. So this process
may be killed at any time: a call is made again, and its outcome counts once. Nothing of the application waits for it.
"""

import gc
import logging
import os
import random
import secrets
import selectors
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final as Fixed

import msgspec
import pyarrow.compute as pc

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.deployment.code_in_force import CodeInForce
from penstock.effects.callers import (
    BLOCKED_S,
    PACKET,
    Call,
    CallEnd,
    Caller,
    CallerCode,
    start_caller,
    too_long,
)
from penstock.effects.queue import Queue, Queued, Status
from penstock.effects.secrets import read_secrets
from penstock.engine.effect_call import ERROR_MAX, effect_id_of, hint_of, record_id, settlement_of
from penstock.errors import Diverged, LogUnavailable, PenstockError, RequestConflict
from penstock.files.lock import Claimed, claim
from penstock.files.looks import Looks
from penstock.files.roots import shared_root, snapshots_root, store_of
from penstock.journal.api import Journal, PartKind, newest_epoch
from penstock.log.api import Entry, Log
from penstock.log.clock import wall_clock_us
from penstock.model.application import App
from penstock.model.effect import TIMEOUT, TRIES, EffectPlan, limits_of_effect, plan_of
from penstock.model.limit import Limit
from penstock.model.waiting_effect import EFFECT, Kind, Settlement
from penstock.process import presence
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.disk_space import tells_of_full_disk
from penstock.process.effect_files import (
    ROLE,
    EffectCounts,
    EffectsReport,
    lineage_of,
    lock_of,
    queue_of,
    read_effects_report,
    write_effects_report,
)
from penstock.process.stop import Stop
from penstock.process.view_files import Held, held
from penstock.retention.leases import lease
from penstock.snapshots.newest_states import COLUMNS
from penstock.snapshots.snapshot import Snapshots

_log = logging.getLogger(__name__)

DEATHS_MAX: Fixed = 2
"""An effect that has ended its process so often is not called again."""

BACK_OFF_S: Fixed = 0.5
"""The pause behind the first failure; each further failure doubles it."""

BACK_OFF_MAX_S: Fixed = 300.0
AFTER_MAX_S: Fixed = 30 * 86_400.0
"""The longest pause that the other side may ask for."""

_JITTER: Fixed = (0.5, 1.5)
"""The bounds of the factor of each pause, so that those who failed together do not come again together."""

_ON_LOOP_MAX: Fixed = 1_000
"""The calls of one `async def` effect at a time, without a limit of its own."""

_AHEAD_S: Fixed = 0.005
"""Calls that take so long together may be given ahead to a process."""

_AHEAD_MOST_S: Fixed = 0.1
"""If the call before them takes so long, they are taken back."""

_PACKET_ROW: Fixed = PACKET - 512
"""A longer row may not fit into a packet, and is never given ahead."""

_IDLE_S: Fixed = 30.0
"""A caller that had nothing to do for so long ends."""

_WAIT_S: Fixed = 0.2
_FLUSH_S: Fixed = 0.01
_LOOK_S: Fixed = 0.5
_REPORT_S: Fixed = 1.0
_COUNT_SHARE: Fixed = 50
"""Counting takes at most this part of the time: a million rows are not counted each second."""

_BATCH: Fixed = 1_000
_PAUSE_S: Fixed = 0.5
_NICE: Fixed = 2
_STEP: Fixed = 20_000
_NIL: Fixed = b"\xc0"
_NO_PLAN: Fixed = EffectPlan(TRIES, TIMEOUT.total_seconds(), None, once=False, is_async=False)
"""For a function that the application does not have any more: its call says so."""

Rows = list[tuple[str, bytes | None]]


def retry_due_us(
    plan: EffectPlan,
    sent_us: int,
    tries: int,
    now_us: int,
    after_s: float | None,
    jitter: float,
) -> int | None:
    """Return when a failed effect is called again; None if it has failed for good.

    Args:
        sent_us: When it was sent, by the clock that `now_us` has.
        tries: The calls until now.
        after_s: The pause that the other side has asked for; None without one.
        jitter: The factor of the pause.
    """
    if tries >= plan.tries:
        return None
    pause_s = min(BACK_OFF_MAX_S, BACK_OFF_S * 2 ** min(tries - 1, 20)) * jitter
    # In this order, NaN counts for nothing.
    asked_s = min(AFTER_MAX_S, max(0.0, after_s or 0.0))
    due_us = now_us + int(max(pause_s, asked_s) * 1e6)
    if plan.until_s is not None and due_us > sent_us + int(plan.until_s * 1e6):
        return None
    return due_us


class Rate:
    """The rate of an effect's calls: tokens that come one by one.

    It begins without tokens, so that the crowd after a restart keeps to the limit, too.
    """

    def __init__(self, limit: Limit, now_s: float) -> None:
        self.limit = limit
        self._tokens = 0.0
        self._at_s = now_s

    def due_in(self, now_s: float) -> float:
        """Return the seconds until the next call may begin."""
        self._tokens = min(
            float(self.limit.burst), self._tokens + (now_s - self._at_s) * self.limit.rate_per_s
        )
        self._at_s = now_s
        return 0.0 if self._tokens >= 1 else (1 - self._tokens) / self.limit.rate_per_s

    def take(self) -> None:
        """Use a token."""
        self._tokens -= 1


@dataclass(slots=True)
class _Function:
    """An effect of the application, and its running calls.

    Attributes:
        most: The places: the calls at a time. Calls that are given ahead take none.
        repeated: The running calls of effects that have failed before.
        mean_s: The time of a call, as it was of late; None if it is not known.
        begun: The keys of `once=True` effects whose beginning is in the log, and that are not called yet. They have places, too:
            after a crash, the outcome of each would be unknown.
    """

    plan: EffectPlan
    most: int
    rates: list[Rate] = field(default_factory=list)
    running: int = 0
    repeated: int = 0
    mean_s: float | None = None
    begun: set[str] = field(default_factory=set)
    owners: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    failures: int = 0
    outcomes: int = 0

    @property
    def ahead(self) -> int:
        """How many calls may wait in a process behind the running one."""
        plan = self.plan
        # The beginning of a `once=True` effect must be its own, and a rate counts beginnings.
        if self.mean_s is None or plan.once or plan.is_async or self.rates:
            return 0
        return int(_AHEAD_S / max(self.mean_s, 1e-6))

    def took(self, seconds: float) -> None:
        """Learn from the time of a call."""
        self.mean_s = seconds if self.mean_s is None else 0.9 * self.mean_s + 0.1 * seconds


@dataclass(slots=True, eq=False)
class _Running:
    """A call that runs."""

    queued: Queued
    effect_id: str
    caller: Caller
    timeout_s: float
    is_repeated: bool


class Follower(threading.Thread):
    """Reads the rows of effects from the journal, epoch by epoch, in a thread of its own."""

    def __init__(self, journal: Journal, after: Epoch, wake: Callable[[], None]) -> None:
        super().__init__(daemon=True, name="follower")
        self._journal = journal
        self._epoch = after
        self._wake = wake
        self._room = threading.Semaphore(8)
        self.still = threading.Lock()
        self.batches: deque[tuple[Epoch, Rows]] = deque()
        self.failure: PenstockError | OSError | None = None
        self.ends = False

    def run(self) -> None:
        """Read until the end, or until the journal cannot be read."""
        try:
            while not self.ends:
                if self._journal.wait(self._epoch, 200) is None:
                    continue
                with (
                    self.still
                ):  # no fork while this thread uses libraries that have locks of their own
                    upto = Epoch(min(newest_epoch(self._journal), self._epoch + 200))
                    rows: Rows = []
                    if self._epoch + 1 < self._journal.first():
                        raise Diverged("the journal has forgotten epochs that the queue lacks")
                    for part in effect_rows(self._journal, self._epoch, upto):
                        rows += part
                self._room.acquire()
                self._epoch = upto
                self.batches.append((upto, rows))
                self._wake()
        except (PenstockError, OSError) as error:
            self.failure = error
            self._wake()

    def take(self) -> list[tuple[Epoch, Rows]]:
        """Return the batches that were read since the last call."""
        taken: list[tuple[Epoch, Rows]] = []
        while self.batches:
            taken.append(self.batches.popleft())
            self._room.release()
        return taken


def effect_rows(journal: Journal, after: Epoch, upto: Epoch) -> Iterable[Rows]:
    """Yield the changes of the rows of effects in the epochs of (after, upto], in order."""
    for _, rows in journal.rows(PartKind.CHANGES, after, upto, COLUMNS):
        own = rows.filter(pc.equal(rows["entity"], EFFECT))
        for start in range(0, own.num_rows, _STEP):
            part = own.slice(start, _STEP)
            yield [*zip(part["key"].to_pylist(), part["state"].to_pylist(), strict=True)]


class Appender(threading.Thread):
    """Appends outcomes to the log, many with one write, in a thread of its own."""

    def __init__(self, log: Log, wake: Callable[[], None]) -> None:
        super().__init__(daemon=True, name="appender")
        self._log = log
        self._wake = wake
        self._given: deque[tuple[str, Settlement, Entry]] = deque()
        self._some = threading.Event()
        self.appended: deque[tuple[str, Settlement, bool]] = deque()
        self.problem = ""
        self.ends = False

    def give(self, queued: Queued, settlement: Settlement) -> None:
        """Take the outcome of an effect, or its beginning."""
        hint = hint_of(queued.effect)
        entry = Entry(record_id(settlement), settlement.body(), hint, wall_clock_us())
        self._given.append((queued.key, settlement, entry))
        if not self._some.is_set():
            self._some.set()

    def run(self) -> None:
        """Append until the end; an outcome that the log does not take now is tried again."""
        while not self.ends:
            self._some.wait(0.2)
            self._some.clear()
            while self._given and not self.ends:
                batch = [self._given[place] for place in range(min(_BATCH, len(self._given)))]
                if not self._append(batch):
                    time.sleep(_PAUSE_S)
                    break
                for _ in batch:
                    self._given.popleft()
                self._wake()

    def _append(self, batch: Sequence[tuple[str, Settlement, Entry]]) -> bool:
        """Append outcomes; return whether the log has taken them."""
        try:
            self._log.append([entry for _, _, entry in batch], limited=False)
        except RequestConflict:
            # Another call of one of them has ended before: the log has its outcome already.
            if len(batch) == 1:
                key, settlement, _ = batch[0]
                self.appended.append((key, settlement, False))
                return True
            taken = [self._append([each]) for each in batch]
            return all(taken)
        except PenstockError as error:
            self.problem = str(error)
            return False
        self.problem = ""
        self.appended.extend((key, settlement, True) for key, settlement, _ in batch)
        return True


class EffectService:
    """Calls the effects of one data directory; for one thread."""

    _copy: Held | None = None  # the hold of the data directory, at the last look

    def __init__(
        self,
        app: App,
        config: Config,
        journal: Journal,
        log: Log,
        environment: Mapping[str, str],
        code: CodeInForce | None = None,
    ) -> None:
        """Open the queue; nothing is called yet.

        Args:
            environment: The variables of the process, in which secrets may be.
            code: Loads later deployments; None: the application stays as it was given.
        """
        self._config = config
        self._settings = config.effects
        self._data, self._looks = config.data, Looks(shared_root(config.data), _LOOK_S)
        self._journal = journal
        self._log = log
        self._environment = environment
        self._code_in_force = code
        self._claim = secrets.token_hex(8)
        self._queue = Queue(queue_of(config.data), self._claim)
        self._lineage = lineage_of(config.data, journal.secret)
        self._callers: list[Caller] = []
        self._running: dict[int, _Running] = {}
        self._number = 0
        self._functions: dict[str, _Function] = {}
        self._selector = selectors.DefaultSelector()
        self._wake_source, self._wake_sink = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_source, selectors.EVENT_READ)
        self._appender = Appender(log, self._wake)
        self._follower: Follower | None = None
        self._epoch = BEFORE_FIRST
        self._looked_at = self._reported_at = self._counts_at = float("-inf")
        self._counts: tuple[EffectCounts, ...] = ()
        self._problem, self._secrets_stamp = "", self._stamp_of_secrets()
        self._deployments, self._has_lost = 0, True
        self._stop = threading.Event()
        self._held: tuple[str, str, str] | None = None
        self._app = app
        self._code = self._code_of(app)
        self._use(app)

    def _wake(self) -> None:
        with suppress(BlockingIOError, OSError):
            os.write(self._wake_sink, b".")

    def _code_of(self, app: App) -> CallerCode:
        still = threading.Lock() if self._follower is None else self._follower.still
        return CallerCode(
            app,
            self._data,
            read_secrets(self._settings.secrets, self._environment),
            self._settings.memory_mb << 20,
            self._config.limits.reply_bytes,
            self._deployments,
            still,
        )

    def _use(self, app: App) -> None:
        """Call the effects that an application declares."""
        self._app = app
        self._code = self._code_of(app)
        now_s = time.monotonic()
        former, self._functions = self._functions, {}
        for name in app.effects:
            plan = plan_of(app.effects[name].function) or _NO_PLAN
            limits = limits_of_effect(app.effects[name].function)
            at_once = [limit.at_once for limit in limits if limit.at_once]
            most = _ON_LOOP_MAX if plan.is_async else self._settings.at_once
            known = former.get(name) or _Function(plan, 0)
            known.plan, known.most = plan, min(at_once) if at_once else most
            rates = {rate.limit.text: rate for rate in known.rates}
            known.rates = [
                rates.get(limit.text) or Rate(limit, now_s) for limit in limits if limit.rate_per_s
            ]
            self._functions[name] = known

    def _function(self, name: str) -> _Function:
        if name not in self._functions:
            self._functions[name] = _Function(_NO_PLAN, 1)
        return self._functions[name]

    def run(self, stop: threading.Event) -> None:
        """Call effects until the process is asked to stop."""
        self._stop = stop
        self._appender.start()
        try:
            while not stop.is_set():
                try:
                    self._step()
                except (PenstockError, OSError, MemoryError) as error:
                    self._trouble(error)
        finally:
            self._end()

    def _trouble(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        if text != self._problem:
            _log.warning("effects.wait", extra={"reason": text})
        self._problem = text
        if isinstance(error, Diverged):
            self._restart()
        self._reported_at = float("-inf")
        self._tell("waiting", text)
        self._stop.wait(_PAUSE_S)

    def _step(self) -> None:
        """Do the work that is due, and wait for more."""
        if self._follower is None:
            self._begin_to_follow()
        self._take_epochs()
        self._take_appended()
        hindrance = self._hindrance()
        wait_s = _WAIT_S
        if hindrance is None:
            self._take_code()
            if self._has_lost:
                self._settle_lost()
            wait_s = self._call_due()
            self._tell("following", self._problem or self._appender.problem)
        else:
            self._tell(*hindrance)
        self._queue.commit_at_times()
        self._take_ends(wait_s)
        self._end_late_calls()

    def _hindrance(self) -> tuple[str, str, str] | None:
        """Return the state, the reason and the remedy if nothing may be called; None if effects are called."""
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_S:
            self._looked_at = now
            self._held = None
            stamp = self._stamp_of_secrets()
            if stamp != self._secrets_stamp:
                self._deployments += 1  # callers with the former secrets end after their calls
                self._code = self._code_of(self._app)
                self._secrets_stamp = stamp
            if self._looks.is_due():
                self._copy = held(self._data)
            if self._copy is not None:
                self._held = ("held", self._copy.reason, "run penstock resume")
            elif store_of(self._data) and not presence.find(self._data, "driver"):
                self._held = ("waiting", "the driver runs on another host", "")
        return self._held

    def _stamp_of_secrets(self) -> tuple[int, int] | None:
        """Return what differs when the file of secrets has another content; None without a file."""
        path = self._settings.secrets
        if path == Path() or not path.exists():
            return None
        status = path.stat()
        return status.st_mtime_ns, status.st_ino

    # The journal, and the code.

    def _begin_to_follow(self) -> None:
        """Fill the queue if it does not continue the journal, and follow the journal from there."""
        position, newest = self._queue.position(), newest_epoch(self._journal)
        is_own = position is not None and position[0] == self._journal.identity
        if position is None or not is_own or not self._journal.first() - 1 <= position[1] <= newest:
            self._fill(newest)
            position = self._queue.position()
        assert position is not None, "it was filled"
        self._epoch = position[1]
        self._check_settled()
        self._follower = Follower(self._journal, self._epoch, self._wake)
        self._code = self._code_of(self._app)
        self._follower.start()

    def _restart(self) -> None:
        if self._follower is not None:
            self._follower.ends = True
            self._follower.join(2.0)
            self._follower = None

    def _fill(self, newest: Epoch) -> None:
        """Fill the queue from the newest snapshot and the epochs behind it."""
        self._tell("filling")
        self._queue.clear()
        self._has_lost = True
        with lease(self._data, "effects", Epoch(max(0, self._journal.first()))):
            first = self._journal.first()
            snapshots = Snapshots(snapshots_root(self._data), self._journal.identity)
            manifests = snapshots.every(newest)
            base = next((each for each in manifests if each.epoch + 1 >= first), None)
            if base is None and first > 0:
                raise Diverged(
                    f"the journal begins with epoch {first}, and no snapshot holds the state before it; restore a backup"
                )
            after = BEFORE_FIRST if base is None else base.epoch
            class_files = None if base is None else base.classes.get(EFFECT)
            for file in () if class_files is None else class_files.files:
                assert class_files is not None
                rows = snapshots.states(class_files, file)
                for start in range(0, rows.num_rows, _STEP):
                    part = rows.slice(start, _STEP)
                    self._queue.take(
                        zip(part["key"].to_pylist(), part["state"].to_pylist(), strict=True)
                    )
            for rows_of_epochs in effect_rows(self._journal, after, newest):
                self._queue.take(rows_of_epochs)
        self._queue.reach(self._journal.identity, newest)
        self._queue.commit()
        _log.info("effects.filled", extra={"epoch": newest})

    def _check_settled(self) -> None:
        """Let effects be called again whose outcome the log has lost: an operator may have abandoned it."""
        for queued in self._queue.settled():
            outcome = settlement_of(queued.effect, "done")
            if self._log.find(record_id(outcome)) is None:
                self._queue.put(queued.key, Status.RETRY)

    def _take_epochs(self) -> None:
        assert self._follower is not None
        if self._follower.failure is not None:
            failure = self._follower.failure
            self._restart()
            raise failure
        for epoch, rows in self._follower.take():
            if rows:
                self._queue.take(rows)
                self._has_lost = True
                self._give_back(key for key, row in rows if row is None)
            self._epoch = epoch
            self._queue.reach(self._journal.identity, epoch)

    def _give_back(self, gone: Iterable[str]) -> None:
        """Free the places of effects that have begun, and that an operator has discarded."""
        keys = set(gone)
        for function in self._functions.values():
            function.begun -= keys

    def _take_code(self) -> None:
        """Use the code of the deployment in force."""
        code = self._code_in_force
        deployment = None if code is None else code.due(Epoch(self._epoch + 1))
        if code is None or deployment is None:
            return
        with code.exchange(deployment):
            loaded = code.load(deployment)
            self._deployments += 1
            self._use(self._app if loaded is None else loaded.app)
            _log.info("effects.deployment", extra={"deployment": deployment.number})
        self._problem = code.problem

    # Calls.

    def _call_due(self) -> float:
        """Begin the calls that are due and have a place; return the seconds until the next one may be due."""
        now_us = wall_clock_us()
        next_us = self._queue.wake(now_us)
        wait_s = _WAIT_S if next_us is None else max(0.0, min(_WAIT_S, (next_us - now_us) / 1e6))
        for status in (Status.BEGUN, Status.READY, Status.RETRY):
            for name in self._queue.functions(status):
                wait_s = min(wait_s, self._call_function(name, status))
        return wait_s

    def _call_function(self, name: str, status: Status) -> float:
        """Begin calls of one function, as far as it has places."""
        function = self._function(name)
        # Those that have failed before take at most half of the places, and so do those of one owner: if some hang,
        # there is a place for others.
        half = max(1, function.most // 2)
        is_retry = status is Status.RETRY
        full: set[str] = set()
        while True:
            has_place = self._has_place(function, status, half)
            ahead = function.ahead if status is Status.READY else 0
            rooms = [each for each in self._callers if ahead and each.has_room(name, ahead)]
            if not (has_place or rooms):
                break
            now_s = time.monotonic()
            due_s = max((rate.due_in(now_s) for rate in function.rates), default=0.0)
            if due_s > 0:
                return due_s
            queued = self._queue.next(status, name)
            if queued is None or queued.owner in full:
                break
            may_begin = function.owners[queued.owner] < half
            room = _room_for(queued, rooms, may_begin=may_begin)
            if room is None and not (has_place and may_begin):
                full.add(queued.owner)
                continue
            full.clear()
            if not self._begin(function, queued, room, is_repeated=is_retry):
                return _WAIT_S
        return _WAIT_S

    @staticmethod
    def _has_place(function: _Function, status: Status, half: int) -> bool:
        """Say whether a call may begin in a process that makes no other."""
        if status is Status.RETRY and function.repeated >= half:
            return False
        begun = 0 if status is Status.BEGUN else len(function.begun)
        return function.running + begun < function.most

    def _begin(
        self, function: _Function, queued: Queued, room: Caller | None, *, is_repeated: bool
    ) -> bool:
        """Begin a call, or note its beginning first; return whether a caller could be had.

        Args:
            room: A process to which the call can be given ahead; None: it needs a place.
        """
        effect, plan = queued.effect, function.plan
        if plan.once and effect.state == "waiting":
            self._queue.put(queued.key, Status.RUNNING)
            function.begun.add(queued.key)
            beginning = settlement_of(effect, "begin", error=self._claim)
            self._appender.give(queued, beginning)
            return True
        caller = room or self._caller_for(plan, alone=queued.deaths > 0)
        if caller is None:
            return False
        self._number += 1
        effect_id = effect_id_of(self._lineage, effect)
        call = Call(self._number, effect_id, queued.row, plan.timeout_s)
        slack_s = BLOCKED_S + 2.0 if caller.on_loop else 0.0  # the loop itself ends the call
        self._queue.call(queued)
        function.begun.discard(queued.key)
        self._running[call.number] = _Running(
            queued, effect_id, caller, plan.timeout_s, is_repeated
        )
        self._take_place(function, caller, queued.owner, is_repeated=is_repeated)
        function.calls += 1
        for rate in function.rates:
            rate.take()
        now = time.monotonic()
        if not caller.on_loop and room is None:
            caller.function, caller.idle_since = effect.function, now
            caller.is_alone = is_repeated or len(queued.row) > _PACKET_ROW
        until = now + plan.timeout_s + slack_s if room is None else float("inf")
        caller.call(call, until)
        return True

    @staticmethod
    def _take_place(function: _Function, caller: Caller, owner: str, *, is_repeated: bool) -> None:
        """Count a call: on an event loop it is a place itself, else its process is, and an owner has it at most once."""
        if caller.on_loop or not caller.owners:
            function.running += 1
            function.repeated += is_repeated
        if caller.on_loop or owner not in caller.owners:
            function.owners[owner] += 1
        caller.owners[owner] += 1

    @staticmethod
    def _give_place(function: _Function, caller: Caller, owner: str, *, is_repeated: bool) -> None:
        caller.owners[owner] -= 1
        if not caller.owners[owner]:
            del caller.owners[owner]
        if caller.on_loop or owner not in caller.owners:
            function.owners[owner] -= 1
            if not function.owners[owner]:
                del function.owners[owner]
        if caller.on_loop or not caller.owners:
            function.running -= 1
            function.repeated -= is_repeated

    def _caller_for(self, plan: EffectPlan, *, alone: bool) -> Caller | None:
        """Return a caller that can take a call; None if the system cannot create one.

        Args:
            alone: Whether the effect has perhaps ended a process, so that it gets one of its own.
        """
        on_loop = plan.is_async and not alone
        for caller in self._callers:
            is_current = caller.code.number == self._code.number
            if is_current and caller.on_loop == on_loop and (on_loop or not caller.calls):
                return caller
        try:
            caller = start_caller(self._code, on_loop=on_loop, others=self._callers)
        except OSError as error:
            self._problem = f"no process can be created for effects: {error}"
            return None
        self._callers.append(caller)
        self._selector.register(caller.source, selectors.EVENT_READ, caller)
        return caller

    def _take_ends(self, wait_s: float) -> None:
        """Wait for callers, and take the calls that have ended."""
        for key, _ in self._selector.select(self._bounded(wait_s)):
            if key.data is None:
                with suppress(BlockingIOError):
                    os.read(self._wake_source, 1 << 16)
                continue
            caller: Caller = key.data
            ends, has_ended = caller.ends()
            for end in ends:
                self._take_end(end)
            if ends:
                self._go_on(caller)
            if has_ended or any(end.leaves for end in ends):
                # One that says why it ends has named the call at fault; the others are made again.
                self._lose_caller(caller, blames=not any(end.leaves for end in ends))
        now = time.monotonic()
        for caller in [each for each in self._callers if not each.calls]:
            is_former = caller.code.number != self._code.number
            if is_former or now - caller.idle_since > _IDLE_S:
                self._drop(caller)

    def _bounded(self, wait_s: float) -> float:
        """Return how long to wait for callers, after all calls are handed over."""
        # A caller that does not read its pipe must not stop this thread.
        pending = [caller for caller in self._callers if not caller.flush()]
        if pending:
            return min(wait_s, _FLUSH_S)
        has_ahead = any(
            caller.unread is not None and len(caller.calls) > 1 for caller in self._callers
        )
        return min(wait_s, _AHEAD_MOST_S) if has_ahead else wait_s

    def _go_on(self, caller: Caller) -> None:
        """Count the time of the next call of a caller, if it has one."""
        caller.has_made = True
        if caller.on_loop or not caller.calls:
            caller.idle_since = time.monotonic()
        else:
            caller.begin_next(self._running[next(iter(caller.calls))].timeout_s)

    def _take_end(self, end: CallEnd) -> None:
        running = self._leave(end.number)
        if not running.caller.on_loop:
            self._function(running.queued.effect.function).took(end.took_s)
        if end.value is not None and _is_value(end.value):
            self._settle(running.queued, "done", value=end.value, effect_id=running.effect_id)
            return
        self._failed(running, end, running.queued.deaths + end.blocks)

    def _leave(self, number: int) -> _Running:
        running = self._running.pop(number)
        function = self._function(running.queued.effect.function)
        owner = running.queued.owner
        self._give_place(function, running.caller, owner, is_repeated=running.is_repeated)
        return running

    def _take_back(self, caller: Caller) -> None:
        """Let the calls be given to others that wait in a caller and have not begun."""
        for number in caller.take_back():
            self._give_again(number)

    def _give_again(self, number: int) -> None:
        queued = self._leave(number).queued
        self._function(queued.effect.function).calls -= 1
        self._queue.take_back(queued.key)

    def _failed(self, running: _Running, end: CallEnd, deaths: int) -> None:
        """Take the failure of a call."""
        queued = running.queued
        function = self._function(queued.effect.function)
        function.failures += 1
        if function.plan.once and not end.has_ended:
            self._settle(queued, "unknown", error=end.error)
            return
        tries = queued.tries + 1
        due_us = None
        if not end.is_final and deaths < DEATHS_MAX:
            jitter = random.uniform(*_JITTER)
            sent_us = self._queue.sent_us(queued)
            due_us = retry_due_us(
                function.plan, sent_us, tries, wall_clock_us(), end.after_s, jitter
            )
        if due_us is None:
            self._settle(queued, "failed", value=end.hidden or _NIL, error=end.error)
        else:
            self._queue.put_later(queued.key, due_us, deaths, end.error[:ERROR_MAX])

    def _end_late_calls(self) -> None:
        """Kill the callers whose call takes too long, and let no call wait behind one that takes longer than others."""
        now = time.monotonic()
        for caller in list(self._callers):
            if len(caller.calls) > 1 and now - caller.idle_since > _AHEAD_MOST_S:
                self._take_back(caller)
            late = [number for number, until in caller.calls.items() if until < now]
            if not late:
                continue
            if not caller.on_loop:
                running = self._leave(late[0])
                del caller.calls[late[0]]
                self._function(running.queued.effect.function).took(running.timeout_s)
                self._lose_caller(caller, blames=False)
                end = CallEnd(late[0], None, too_long(running.timeout_s), has_ended=False)
                self._failed(running, end, running.queued.deaths)
            else:
                self._lose_caller(caller)

    def _lose_caller(self, caller: Caller, *, blames: bool = True) -> None:
        """Take the end of a caller.

        Args:
            blames: Whether its calls may be the reason.
        """
        unread = caller.take_back()
        lost = list(caller.calls)
        if blames and not (lost or caller.has_made):
            lost = unread[:1]  # else a process that cannot even begin would be made for ever
        for number in unread:
            if number not in lost:
                self._give_again(number)
        caller.calls.clear()
        how = self._drop(caller)
        for number in lost:
            running = self._leave(number)
            end = CallEnd(number, None, f"its process {how}", has_ended=False)
            self._failed(running, end, running.queued.deaths + blames)

    def _drop(self, caller: Caller) -> str:
        self._selector.unregister(caller.source)
        self._callers.remove(caller)
        return caller.end()

    # Outcomes.

    def _settle(
        self,
        queued: Queued,
        outcome: Kind,
        *,
        value: bytes = _NIL,
        error: str = "",
        effect_id: str = "",
    ) -> None:
        effect = queued.effect
        self._function(effect.function).outcomes += 1
        settlement = settlement_of(
            effect,
            outcome,
            value=value,
            error=error,
            tries=queued.tries + (outcome != "unknown"),
            effect_id=effect_id or effect_id_of(self._lineage, effect),
        )
        self._appender.give(queued, settlement)

    def _settle_lost(self) -> None:
        """Record that the outcome of effects is unknown that an earlier process has begun."""
        lost = self._queue.lost(_BATCH)
        for queued in lost:
            self._queue.put(queued.key, Status.RUNNING)
            self._function(queued.effect.function).begun.discard(queued.key)
            self._settle(queued, "unknown", error="its process ended before the result was noted")
        self._has_lost = len(lost) == _BATCH

    def _take_appended(self) -> None:
        appended = self._appender.appended
        while appended:
            key, settlement, _ = appended.popleft()
            if settlement.kind != "begin":
                self._queue.settle(key)

    # The report.

    def _tell(self, state: str, reason: str = "", remedy: str = "") -> None:
        """Write the report from time to time."""
        now = time.monotonic()
        if now - self._reported_at < _REPORT_S:
            return
        self._reported_at = now
        if now >= self._counts_at:
            self._counts = self._counted()
            self._counts_at = now + _COUNT_SHARE * (time.monotonic() - now)
        report = EffectsReport(
            state, self._epoch, reason, remedy, wall_clock_us(), os.getpid(), self._counts
        )
        write_effects_report(self._data, report)

    def _counted(self) -> tuple[EffectCounts, ...]:
        stored = {counts.function: counts for counts in self._queue.counts()}
        counted: list[EffectCounts] = []
        for name in sorted({*stored, *self._functions}):
            function, rows = self._function(name), stored.get(name)
            waiting, running, dead = (0, 0, 0) if rows is None else rows[1:]
            numbers = (function.calls, function.failures, function.outcomes)
            counted.append(EffectCounts(name, waiting, running, dead, *numbers))
        return tuple(counted)

    def _end(self) -> None:
        """End all callers; the calls that run are made again by the next process."""
        for caller in list(self._callers):
            self._drop(caller)
        self._restart()
        self._appender.ends = True
        self._appender.join(2.0)
        self._take_appended()
        self._reported_at = float("-inf")
        with suppress(sqlite3.Error):  # the file may be the reason of the end
            self._tell("stopped")
            self._queue.close()
        self._selector.close()


def _room_for(queued: Queued, rooms: Sequence[Caller], *, may_begin: bool) -> Caller | None:
    """Return a process to which a call can be given ahead; None if it needs a place.

    Args:
        may_begin: Whether the owner may have another process.
    """
    if queued.deaths or len(queued.row) > _PACKET_ROW:
        return None
    return next((each for each in rooms if may_begin or queued.owner in each.owners), None)


def _is_value(data: bytes) -> bool:
    """Say whether a result is whole: the function can have written to the pipe of its process."""
    try:
        msgspec.msgpack.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True


@contextmanager
def telling_of_queue(data: Path) -> Iterator[None]:
    """Report the errors of the file of the queue: the process ends, and is started again.

    Raises:
        LogUnavailable: The file cannot be read or written.
    """
    try:
        yield
    except sqlite3.Error as error:
        reason = f"{queue_of(data)}: {error}"
        remedy = "make room on its disk" if tells_of_full_disk(error) else ""
        known = read_effects_report(data) or EffectsReport("stopped")
        report = msgspec.structs.replace(known, state="stopped", reason=reason, remedy=remedy)
        write_effects_report(data, report)
        raise LogUnavailable(reason) from error


def serve_effects(
    app: App, config: Config, environment: Mapping[str, str], *, supervised: bool = False
) -> None:
    """Call the effects of an application until the process is asked to stop.

    Args:
        environment: The variables of the process, in which secrets may be.
        supervised: Whether the end of standard input stops the process, too.

    Raises:
        ConfigError: The file of secrets cannot be used, or another process calls the effects of the directory.
    """
    directory = DataDirectory(config.data)
    directory.create(config.key_service)
    lock = lock_of(config.data)
    lock.parent.mkdir(parents=True, exist_ok=True)
    read_secrets(config.effects.secrets, environment)
    with ExitStack() as stack:
        stop = stack.enter_context(Stop(supervised=supervised))
        descriptor = _claimed(lock, stop.wanted)
        if descriptor is None:
            return
        stack.callback(os.close, descriptor)
        os.nice(_NICE)
        journal = stack.enter_context(closing(directory.open_journal(app)))
        log = stack.enter_context(closing(directory.open_log(config)))
        stack.enter_context(presence.present(config.data, ROLE, config.app))
        gc.freeze()
        code = CodeInForce(config.data, config.app, known=journal.known)
        _log.info("effects.follow", extra={"effects": len(app.effects)})
        stack.enter_context(telling_of_queue(config.data))
        EffectService(app, config, journal, log, environment, code).run(stop.wanted)


def _claimed(lock: Path, stop: threading.Event) -> int | None:
    """Hold the lock of the effect process; None if the process is asked to stop before it is free."""
    while not stop.is_set():
        try:
            return claim(lock)
        except Claimed:  # a former process ends
            stop.wait(_PAUSE_S)
    return None
