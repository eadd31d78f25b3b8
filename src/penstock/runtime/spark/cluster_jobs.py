"""Task commands on the hosts of a Spark cluster: each goes to a resident task, on whichever host.

Each host has the whole state, or asks others for the rest (`holders`), so any of its tasks can run any command. Small epochs stay on one host, the *home*, whose stores
are the newest; a large epoch uses the tasks of all hosts. If a task is lost, its command runs again in another one at once,
which costs one retry and no start. There are no ordinary jobs: the resident tasks have all slots of the cluster.

The driver has what must outlive a host: the notes of deaths go with each command of their epoch. Where the log is a file of the
driver's host, the records of a command go with it, too.
"""

import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from pyspark.core.context import SparkContext

from penstock.base.cause import cause_text
from penstock.base.ids import BEFORE_FIRST, BUCKETS, Epoch
from penstock.engine.order import hinted_access
from penstock.errors import (
    ConfigError,
    EpochFailed,
    OperationalError,
    PenstockError,
    StateUnavailable,
)
from penstock.files.layout import PLACEMENT
from penstock.files.roots import store_of
from penstock.files.shared_root import SharedRoot
from penstock.log.api import Log
from penstock.model.request import Failure
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.retention.maintenance_process import run_maintenance
from penstock.runtime.spark import messages
from penstock.runtime.spark.frames import new_credentials
from penstock.runtime.spark.holders import Hold, ask_to_hold
from penstock.runtime.spark.jobs import Jobs
from penstock.runtime.spark.messages import (
    Address,
    ApplyEpoch,
    Hello,
    LogRange,
    Peer,
    Peers,
    Reside,
    RunMaintenance,
    RunTransactions,
    Seat,
    TaskCommand,
    TaskMessage,
    TaskResult,
    WorkerSettings,
)
from penstock.runtime.spark.quarantine import add_deaths, deaths_of
from penstock.runtime.spark.reception import Reception, RemoteDoor
from penstock.runtime.spark.resident_task import ResidentTask
from penstock.runtime.spark.stage import Records, read_epoch
from penstock.runtime.spark.standalone import own_address
from penstock.state.partition_spec import bucket_owners
from penstock.state.placement import held_by

_log = logging.getLogger(__name__)

_ATTEMPTS: Final = 4
"""Attempts at a command before its epoch fails, as with ordinary jobs of Spark."""

_ABSENT_S: Final = 30.0
"""The driver says after this time that it waits for a task of any host."""

_JOIN_S: Final = 180.0
"""The hosts must have joined this long after a start: workers of the cluster may still start."""

_PYTHON_DIFFERS: Final = "PYTHON_VERSION_MISMATCH"
"""The class of Spark's error."""

_LEFT_OUT_S: Final = 30.0
"""A host whose disk is full or fails is left out for this time."""

_LOOK_S: Final = 0.05


_PLACE_S: Final = 1.0
"""The time between two looks at the hosts that hold the state."""

_LEAVES_S: Final = 60.0
"""A host without a task for so long holds no part of the state any more: others build its partitions."""


class _Members(msgspec.Struct, frozen=True):
    """The content of the name in the shared root that says which hosts hold parts of the state.

    Attributes:
        hosts: Their names, in order.
    """

    hosts: list[str]


class Membership:
    """The hosts that hold the state together, where each partition is on a few of them (`copies`).

    They change in two steps, so that no row is without a holder: first those hosts build their new partitions, then all use the
    new placement. The hosts are noted, so a driver that starts again, or elsewhere, goes on with them; else each host would build
    other partitions while one after the other joins.
    """

    def __init__(
        self, shared: SharedRoot, copies: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._shared = shared
        self._copies = copies
        self._clock = clock
        self._lock = threading.Lock()
        self.hosts = self._noted()
        self._next: list[str] = []
        self._seen = dict.fromkeys(self.hosts, clock())

    def lead(self) -> None:
        """Read the note again: another driver may have changed it until now."""
        with self._lock:
            self.hosts = self._noted()
            self._seen |= dict.fromkeys(self.hosts, self._clock())

    def wanted(self, joined: Collection[str]) -> list[str]:
        """Return the hosts that should hold the state: those with tasks, and those that have had none for a short time."""
        with self._lock:
            now = self._clock()
            self._seen |= dict.fromkeys(joined, now)
            staying = {host for host in self.hosts if now - self._seen[host] < _LEAVES_S}
            return sorted(staying.union(joined))

    def prepare(self, hosts: list[str]) -> None:
        """Let hosts keep the partitions, too, that they will hold."""
        with self._lock:
            self._next = hosts

    def use(self, hosts: list[str]) -> None:
        """Let all tasks use the placement on these hosts."""
        with self._lock:
            self.hosts, self._next = hosts, []
        facts = {"hosts": ", ".join(hosts), "copies": self._copies}
        _log.info("the state is divided among hosts", extra=facts)
        try:
            self._shared.replace(PLACEMENT, msgspec.json.encode(_Members(hosts)))
        except (OSError, PenstockError) as error:
            cause = {"cause": cause_text(error)}
            _log.warning("the hosts that hold the state cannot be noted", extra=cause)

    def parts(self, hosts: list[str], partitions: int) -> dict[str, list[int]]:
        """Return the partitions that hosts would hold."""
        return {host: sorted(held_by(host, hosts, partitions, self._copies)) for host in hosts}

    def peers(self, addresses: Mapping[str, list[Address]]) -> Peers:
        """Return the hosts for tasks.

        Args:
            addresses: The addresses at which the hosts with tasks give rows to others.
        """
        with self._lock:
            # Without a note nothing is placed yet. A standby keeps up the stores that it finds.
            hosts = self.hosts or sorted(addresses)
            return Peers(
                self._copies, [Peer(host, addresses.get(host, [])) for host in hosts], self._next
            )

    def _noted(self) -> list[str]:
        try:
            return msgspec.json.decode(self._shared.get(PLACEMENT), type=_Members).hosts
        except (OSError, PenstockError, msgspec.MsgspecError):
            return []  # where rows are decides no outcome


def _joined(commands: Sequence[ApplyEpoch]) -> ApplyEpoch:
    """Return one command for the stores of several."""
    whole = [part for command in commands for part in command.owned]
    return msgspec.structs.replace(commands[0], owned=whole)


class _Task:
    """A resident task of the cluster, which one command at a time may use."""

    def __init__(self, door: RemoteDoor, resident: ResidentTask) -> None:
        self.door = door
        self.resident = resident
        self.in_use = False
        self.is_greeted = False

    @property
    def host(self) -> str | None:
        """The host; None without a connection."""
        hello = self.door.hello
        return None if hello is None or self.resident.connected() is None else hello.host

    @property
    def is_new(self) -> bool:
        """Whether it still loads the application; for a caller that lets nobody begin to use it."""
        if self.is_greeted and not self.in_use:
            self.is_greeted = self.resident.is_busy
        return self.is_greeted


class ClusterJobs(Jobs):
    """Runs task commands on several hosts; see `Jobs`."""

    def __init__(
        self,
        context: SparkContext,
        settings: WorkerSettings,
        config: Config,
        log: Log,
        stopping: threading.Event,
    ) -> None:
        """Prepare the tasks; `start_resident` starts them.

        Args:
            log: The log, whose file the other hosts do not have.
            stopping: Is set when the driver stops; then no command waits for a host.
        """
        super().__init__(context, settings)
        self._prepare(settings, config, log, stopping)

    def _prepare(
        self, settings: WorkerSettings, config: Config, log: Log, stopping: threading.Event
    ) -> None:
        self._log = log
        self._stopping = stopping
        self._scratch = Path(settings.scratch)
        self._hosts_wanted = config.hosts
        self._read: tuple[list[LogRange], Records] = ([], [])
        self._epoch = BEFORE_FIRST
        self._have_died = False
        self._home: str | None = None
        self._left_out: dict[str, float] = {}  # hosts, and until when
        self._started = False
        self._applied = BEFORE_FIRST
        self._membership: Membership | None = None
        if (copies := config.copies_max) is not None:
            self._membership = Membership(DataDirectory(config.data).shared, copies)
        self._leads = False
        credentials = self._credentials = new_credentials()
        self._reception = Reception(
            own_address(config.master), credentials, self._take_deaths, self._greet
        )
        data = settings.data
        seat = Seat(
            self._reception.address, credentials, str(config.host_root), data, self._scratch.name,
            config.stuck_s, store_of(config.data), self._membership is not None,
        )  # fmt: skip
        self._tasks = [
            self._new_task(f"resident{number}", seat) for number in range(config.residents)
        ]
        self._residents = [task.resident for task in self._tasks]

    def _new_task(self, name: str, seat: Seat) -> _Task:
        door = self._reception.door(name, seat)
        resident = ResidentTask(
            self._reside, door, encode=self._message, on_deaths=self._take_deaths,
            on_failure=partial(self._leaves, door),
        )  # fmt: skip
        return _Task(door, resident)

    def _reside(self, reside: Reside) -> None:
        """Run the job of a resident task."""
        try:
            self._run_alone(reside)
        except ConfigError as error:  # its folder, or its access to the object store
            self._reception.refuse(f"{error}; correct it on the host that refuses")
            raise
        except Exception as error:
            if _PYTHON_DIFFERS in str(error):
                self._reception.refuse(
                    "a host runs another minor version of Python than the driver: install the same on all hosts, "
                    "or name it with host_python"
                )
            raise

    def start_resident(self, *, is_standby: bool = False) -> None:
        """Start the resident tasks, and wait until the hosts have joined.

        Args:
            is_standby: Whether another driver may have all slots: then one host is enough, and the wait for it has no end.

        Raises:
            ConfigError: A host is refused, or too few have joined.
            OperationalError: None has joined, where one is enough, or the driver stops.
        """
        if self._started:
            return
        self._started = True
        super().start_resident()
        until = time.monotonic() + (math.inf if is_standby else _JOIN_S)
        wanted = 1 if is_standby else self._hosts_wanted
        with self._reception.changed:
            while len(self.hosts()) < wanted:
                if self._reception.refusal:
                    raise ConfigError(self._reception.refusal)
                if self._stopping.is_set():
                    raise OperationalError("the driver stops")
                if (left := until - time.monotonic()) <= 0:
                    # A driver that starts again after its end needs one host, and tries it until there is one.
                    error = ConfigError if self._hosts_wanted > 1 else OperationalError
                    raise error(
                        f"{len(self.hosts())} of {self._hosts_wanted} hosts have joined the cluster: start a worker of Spark "
                        "with free cores on each host, or ask for fewer hosts"
                    )
                self._reception.changed.wait(min(left, 1.0))

    def stop_resident(self) -> None:
        """End the resident tasks; those that wait for a slot end, too."""
        for task in self._tasks:
            task.resident.expect_end()
        with suppress(Exception):  # Java may have ended
            jobs: Any = self._context._jsc.sc()  # noqa: SLF001 -- as `Jobs`
            jobs.cancelAllJobs()
        super().stop_resident()
        self._reception.close()

    def load_application(self, workers: int) -> None:
        """Let the task of each slot load the application."""
        self.run([ApplyEpoch([], BEFORE_FIRST, self.partitions)] * min(workers, len(self._tasks)))

    @property
    def tasks_max(self) -> int:
        """The most tasks of a round; hosts that hold parts of the state have many small stores."""
        if self._membership is None:
            return self.partitions
        return min(self.partitions, max(1, self.joined()))

    def hosts(self) -> list[str]:
        """Return the names of the hosts that have a task."""
        return sorted({host for task in self._tasks if (host := task.host) is not None})

    def joined(self) -> int:
        """Return the number of tasks that are connected."""
        return len(self.tasks())

    def tasks(self) -> list[Hello]:
        """Return who serves each task that is connected."""
        return [hello for task in self._tasks if task.host and (hello := task.door.hello)]

    def apply(self, commands: Sequence[ApplyEpoch]) -> None:
        """Bring stores to an epoch: those of the home, and begin with those of the other hosts."""
        self._applied = commands[0].epoch
        if self._membership is not None:
            self._lead(self._membership)
            if commands[
                0
            ].former:  # the home alone would have to build the partitions of the others
                self._apply_everywhere(_joined(commands))
                return
        self._begin_elsewhere(commands)
        self.run(commands)

    def _lead(self, membership: Membership) -> None:
        """Begin to decide which hosts hold the state, because this driver has the right to commit."""
        if self._leads:
            return
        self._leads = True
        membership.lead()
        if not membership.hosts:  # the first start: no host has any rows
            self._place(membership)
        threading.Thread(
            target=self._keep_placed, args=(membership,), name="penstock-placement", daemon=True
        ).start()

    def _keep_placed(self, membership: Membership) -> None:
        while not self._stopping.wait(_PLACE_S):
            try:
                self._place(membership)
            except Exception:  # noqa: BLE001 -- the former placement is as good
                _log.exception("the state stays on the hosts where it is")

    def _place(self, membership: Membership) -> None:
        """Let hosts that have joined hold a part of the state, and take over the part of those that have left."""
        addresses = self._addresses()
        wanted = membership.wanted(addresses)
        if not addresses or wanted == membership.hosts:
            return
        membership.prepare(wanted)
        parts = membership.parts(wanted, self.partitions)
        there = [host for host in wanted if host in addresses]
        question = partial(Hold, self._applied, self.partitions)

        def build(host: str) -> bool:
            return ask_to_hold(
                addresses[host], self._credentials, question(parts[host]), self._stopping
            )

        with ThreadPoolExecutor(len(there), "penstock-build") as threads:
            built = list(threads.map(build, there))
        if all(built):
            membership.use(wanted)

    def _apply_everywhere(self, command: ApplyEpoch) -> None:
        """Bring the stores of each host to an epoch, and wait for all hosts; one that is lost is left to a later epoch."""
        hosts = self.hosts()

        def apply(host: str) -> TaskResult:
            with self._use([host], waits=True) as task:
                result = None if task is None else task.resident.run(command)
                return TaskResult() if result is None else result

        if hosts:
            with ThreadPoolExecutor(len(hosts), "penstock-apply") as threads:
                self._sound(list(threads.map(apply, hosts)))

    def apply_resident(self, epoch: Epoch) -> None:
        """Let one task of each host bring all stores to an epoch; do not wait for it."""
        self._applied = epoch
        command = self._catching_up()
        self._begin_elsewhere([command])
        with self._use([self._home] if self._home else []) as task:
            if task is not None:
                task.resident.begin(command)

    def _catching_up(self) -> ApplyEpoch:
        # Before the driver knows the newest epoch, the stores of a host may be newer than this.
        stores = [] if self._applied == BEFORE_FIRST else list(range(self.partitions))
        return ApplyEpoch(stores, self._applied, self.partitions)

    def _greet(self, name: str) -> None:
        """Let a task that has come load the application and bring the stores of its host up to date.

        Otherwise the first command of an epoch would wait for it.
        """
        (task,) = (task for task in self._tasks if task.door.name == name)
        with self._reception.changed:
            if task.in_use:
                return
            task.in_use = True
        try:
            task.resident.begin(self._catching_up())
            task.is_greeted = True
        finally:
            self._release(task)

    def _begin_elsewhere(self, commands: Sequence[ApplyEpoch]) -> None:
        command = _joined(commands)
        for host in self._useful():
            if host != self._home:
                with self._use([host]) as task:
                    if task is not None:
                        task.resident.begin(command)

    def _run_all(self, commands: Sequence[TaskCommand]) -> list[TaskResult]:
        commands = [self._with_records(command) for command in commands]
        if len(commands) == 1:
            return [self._run_somewhere(commands[0], 0)]
        with ThreadPoolExecutor(len(commands), "penstock-command") as threads:
            numbers = itertools.count()
            wishes = map(self._wishes, commands)
            return list(threads.map(self._run_somewhere, commands, numbers, wishes))

    def _wishes(self, command: TaskCommand) -> list[str]:
        """Return the hosts that hold most of the rows of a command first; none if it does not matter."""
        if (
            self._membership is None
            or not isinstance(command, RunTransactions)
            or not command.positions
            or len(command.ranges) != 1
        ):
            return []
        (part,) = command.ranges
        accesses = hinted_access(self._log.hints(part.start, part.end, part.partition))
        own = np.isin(accesses.position, np.frombuffer(command.positions, np.uint32))
        buckets = (accesses.entity[own] % np.uint64(BUCKETS)).astype(np.int64)
        places = np.array(bucket_owners(command.partitions))[buckets]
        rows = np.bincount(places, minlength=command.partitions)
        parts = self._membership.parts(self._membership.hosts, command.partitions)
        return sorted(parts, key=lambda host: -int(rows[parts[host]].sum()))

    def _run_somewhere(
        self, command: TaskCommand, number: int, wishes: Sequence[str] = ()
    ) -> TaskResult:
        """Run a command in a task; in another one if that is lost meanwhile.

        Args:
            number: Its number among those that run at the same time; the first one runs at home.
            wishes: The hosts that should run it, the best one first; empty if all are as good.
        """
        if isinstance(command, RunMaintenance):  # it works on the shared root, and has no slot
            return TaskResult(maintenance=run_maintenance(command.work, command.nice))
        self._epoch = max(self._epoch, getattr(command, "epoch", BEFORE_FIRST))
        attempts = _ATTEMPTS + len(self._tasks)  # a host that is cut off loses all of its tasks
        for _ in range(attempts):
            with self._use(self._preferred(number, wishes), waits=True) as task:
                if task is None:
                    raise OperationalError(
                        "the driver stops, and no host of the cluster has a task"
                    )
                result = task.resident.run(command)
                if result is not None and not self._leaves(task.door, result.failure):
                    return result
            _log.warning(
                "a task is lost, and its command runs again", extra={"task": task.door.name}
            )
        raise EpochFailed(f"the task of a command was lost {attempts} times")

    def _leaves(self, door: RemoteDoor, failure: Failure | None) -> bool:
        """Leave out the host of a task if it cannot keep the state; say whether another host can."""
        if failure is None or failure.kind != StateUnavailable.__name__ or door.hello is None:
            return False
        host = door.hello.host
        facts = {"host": host, "address": door.peer, "cause": failure.message}
        _log.error("a host cannot keep the state, and is left out for a while", extra=facts)
        with self._reception.changed:
            self._left_out[host] = time.monotonic() + _LEFT_OUT_S
            return any(each not in self._left_out for each in self.hosts())

    def _useful(self) -> list[str]:
        """Return the hosts that have a task and are not left out."""
        with self._reception.changed:
            now = time.monotonic()
            self._left_out = {host: end for host, end in self._left_out.items() if end > now}
            return [host for host in self.hosts() if host not in self._left_out]

    def _preferred(self, number: int, wishes: Sequence[str] = ()) -> list[str]:
        """Return the hosts in the order in which a command should try them."""
        with (
            self._reception.changed
        ):  # so that nobody begins to use a task that is asked whether it is new
            hosts = self._useful() or self.hosts()
            if self._home not in hosts:
                # Every host brings its stores to every epoch, so each is as good as the next, unless it has just come.
                ready = [
                    task.host for task in self._tasks if task.host in hosts and not task.is_new
                ]
                self._home = min([host for host in ready if host] or hosts, default=None)
            if self._home is None:
                return []
            others = [host for host in hosts if host != self._home]
        order = [self._home, *others]
        if wishes:
            return sorted(
                order, key=lambda host: wishes.index(host) if host in wishes else len(wishes)
            )
        turn = number % len(order)
        return order[turn:] + order[:turn]

    @contextmanager
    def _use(self, hosts: Sequence[str], *, waits: bool = False) -> Iterator[_Task | None]:
        """Give a free task of some hosts, in their order; None if all are in use.

        Args:
            hosts: The hosts.
            waits: Whether to wait for a task of any host, until the driver stops. A failure here would be taken for
                one of the requests, and a cluster without a host is not.
        """
        told = time.monotonic()
        with self._reception.changed:
            while (task := self._free(hosts)) is None and waits and not self._stopping.is_set():
                self._reception.changed.wait(_LOOK_S)
                hosts = self._preferred(0)
                if not hosts and time.monotonic() - told >= _ABSENT_S:
                    told = time.monotonic()
                    _log.error(
                        "no host of the cluster has a task, and requests wait: start a worker of Spark, or mend its link"
                    )
            if task is not None:
                task.in_use = True
        try:
            yield task
        finally:
            if task is not None:
                self._release(task)

    def _release(self, task: _Task) -> None:
        with self._reception.changed:
            task.in_use = False
            self._reception.changed.notify_all()

    def _free(self, hosts: Sequence[str]) -> _Task | None:
        """Return a free task; one that still loads the application is taken only if no other one is free."""
        # A connection may end at any time, so each task is asked for its host once.
        places = {host: place for place, host in enumerate(hosts)}
        free = [
            (task.is_new, place, number)
            for number, task in enumerate(self._tasks)
            if not task.in_use and (place := places.get(task.host or "")) is not None
        ]
        return self._tasks[min(free)[2]] if free else None

    def _with_records(self, command: TaskCommand) -> TaskCommand:
        """Return a command with the records that it runs."""
        if not isinstance(command, RunTransactions) or command.positions == b"":
            return command
        ranges, records = self._read
        if ranges != command.ranges:
            ranges, records = self._read = command.ranges, read_epoch(self._log, command.ranges)
        positions = (
            range(len(records))
            if command.positions is None
            else np.frombuffer(command.positions, np.uint32).tolist()
        )
        return msgspec.structs.replace(command, records=[records[at] for at in positions])

    def _message(self, command: TaskCommand) -> bytes:
        deaths = {}
        if self._have_died and (epoch := getattr(command, "epoch", None)) is not None:
            deaths = deaths_of(self._scratch, epoch)
        return messages.encode(TaskMessage(self._settings, command, deaths, self._peers()))

    def _peers(self) -> Peers | None:
        """Return the hosts that hold the state together; None if each has all of it."""
        if self._membership is None:
            return None
        return self._membership.peers(self._addresses())

    def _addresses(self) -> dict[str, list[Address]]:
        """Return where the hosts with tasks give rows to others."""
        addresses: dict[str, list[Address]] = {}
        for task in self._tasks:
            if (host := task.host) and (hello := task.door.hello) and hello.port:
                addresses.setdefault(host, []).append((task.door.peer, hello.port))
        return addresses

    def _take_deaths(self, deaths: dict[str, str]) -> None:
        add_deaths(self._scratch, deaths, self._epoch)
        self._have_died = self._have_died or bool(deaths)
