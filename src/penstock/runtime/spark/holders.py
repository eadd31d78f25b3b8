"""Holders: the hosts that hold a part of the state, and give each other the rows of an epoch (`copies`).

With `copies = r` each partition has stores on r hosts (`state.placement`). A task that reads a row of another partition goes
this way:

1. Before a round, it asks for all rows that its requests name, and then for those that these refer to: a batch for each host.
2. A row that is missing nevertheless is asked for when a transaction reads it, together with all references of the rows so far.
3. Each question names the epoch before the running one. The rows of an epoch never change, so all holders give the same bytes,
   and the checksum of each row proves them.
4. A holder that is dead, late, at another epoch, or gives a wrong checksum is passed over, and is not asked again for a while.
5. If no holder answers, this host builds the partition from the journal. That is told, and lasts until the hosts change.

Each warden has a process that answers (`serve_rows`). It loads no code of the application, and brings a store to the epoch that it
is asked for, if that is behind.
"""

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.cause import cause_text
from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch, bucket_of
from penstock.errors import Corrupt, PenstockError, StateUnavailable
from penstock.journal.delta import DeltaJournal
from penstock.process.data_directory import DataDirectory
from penstock.process.process_limits import end_with_parent
from penstock.runtime.spark.frames import TlsFrames, connect, context_of, watch
from penstock.runtime.spark.messages import Address, Peers
from penstock.state import record
from penstock.state.lmdb_reader import LmdbReader
from penstock.state.partition_spec import PartitionSpec, bucket_owners
from penstock.state.placement import Placement, held_by, placed
from penstock.state.stores import PartitionReader, Stores

_log = logging.getLogger(__name__)

CONNECT_S: Final = 1.0
ANSWER_S: Final = 5.0
"""A holder that has not answered after this time is late."""

PASSED_S: Final = 30.0
"""How long a holder that was passed over is not asked."""

_IDLE_S: Final = 10.0
"""A process that answers closes its stores after this time, so that those of former hosts can be deleted."""

_ANSWER_BYTES_MAX: Final = 32 << 20
_KEPT_BYTES_MAX: Final = 256 << 20
_QUESTION_BYTES_MAX: Final = 64 << 20
_RESTART_S: Final = 1.0


class AskRows(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The rows of some entities after an epoch."""

    epoch: Epoch
    partitions: int
    keys: list[EntityKey]


class AskKeys(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The entities of a partition whose keys begin with a prefix, after an epoch."""

    epoch: Epoch
    partitions: int
    partition: int
    prefix: str


class Hold(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Build the stores of partitions, and bring them to an epoch; asked by the driver."""

    epoch: Epoch
    partitions: int
    numbers: list[int]


class Rows(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The rows in the order of the question, each with its checksum; fewer of them if they are too large for one answer."""

    rows: list[bytes | None]


class Keys(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The keys, in order."""

    keys: list[EntityKey]


class Built(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The stores are there."""


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Why a holder does not answer."""

    why: str


Question = AskRows | AskKeys | Hold
Answer = Rows | Keys | Built | Refusal
_encode: Final = msgspec.msgpack.Encoder().encode
_decode_question: Final = msgspec.msgpack.Decoder(Question).decode
_decode_answer: Final = msgspec.msgpack.Decoder(Answer).decode


class HeldHere:
    """For the process that answers: it reads its own stores."""

    def is_own(self, spec: PartitionSpec) -> bool:  # noqa: D102 -- see `Elsewhere`
        return True

    def keeps(self, spec: PartitionSpec) -> bool:  # noqa: D102
        return True

    def has_others(self, spec: PartitionSpec) -> bool:  # noqa: D102
        return False

    def reader(  # noqa: D102
        self, spec: PartitionSpec, epoch: Epoch, take: Callable[[], LmdbReader]
    ) -> PartitionReader:
        return take()


class Holder:
    """Answers questions from the stores of this host.

    Args:
        data: The data directory.
        root: The root of this host.
    """

    def __init__(self, data: Path, root: Path) -> None:
        self._data, self._root = data, root
        self._lock = threading.Lock()
        self._alone = threading.Lock()  # for the driver's thread, which builds while others answer
        self._building: set[PartitionSpec] = set()
        self._stores: Stores | None = None
        self._asked = 0.0

    def answer(self, question: Question) -> Answer:
        """Answer a question; the reason if this host cannot."""
        try:
            if isinstance(question, Hold):
                with self._alone:
                    return self._build(question)
            with self._lock:
                self._asked = time.monotonic()
                return self._answer(question)
        except (PenstockError, OSError) as error:
            return Refusal(cause_text(error))

    def rest(self) -> None:
        """Close the stores after a time without questions."""
        with self._lock:
            if self._stores is not None and time.monotonic() - self._asked > _IDLE_S:
                self._stores.close()

    def _build(self, question: Hold) -> Answer:
        """Build stores, one after the other, and answer from the rest: a process may open a store only once."""
        if question.epoch == BEFORE_FIRST:
            return Built()
        journal = self._journal()
        with closing(journal), closing(self._stores_of(journal)) as stores:
            stores.use(question.partitions)
            for number in question.numbers:
                with self._closed_meanwhile(PartitionSpec(number, question.partitions)):
                    if stores.held().get(number, BEFORE_FIRST) < question.epoch:
                        stores.catch_up_one(number, question.epoch)
                    stores.close()
        return Built()

    @contextmanager
    def _closed_meanwhile(self, spec: PartitionSpec) -> Iterator[None]:
        with self._lock:
            self._building.add(spec)
            if self._stores is not None:
                self._stores.close()
        try:
            yield
        finally:
            with self._lock:
                self._building.discard(spec)

    def _answer(self, question: AskRows | AskKeys) -> Answer:
        stores = self._stores = self._stores or self._stores_of(self._journal())
        stores.use(question.partitions)
        if isinstance(question, AskKeys):
            with self._some_at(stores, question.epoch, [question.partition]) as readers:
                return Keys(readers[question.partition].keys(question.prefix))
        places = [stores.partition_of(key) for key in question.keys]
        rows: list[bytes | None] = []
        size = 0
        with self._some_at(stores, question.epoch, dict.fromkeys(places)) as readers:
            for key, place in zip(question.keys, places, strict=True):
                state = readers[place].get(key)
                rows.append(None if state is None else record.seal(key.encode(), state))
                size += 0 if state is None else len(state)
                if size > _ANSWER_BYTES_MAX:
                    break
        return Rows(rows)

    def _some_at(
        self, stores: Stores, epoch: Epoch, numbers: Iterable[int]
    ) -> AbstractContextManager[dict[int, LmdbReader]]:
        numbers = list(numbers)
        if self._building.intersection(PartitionSpec(each, stores.partitions) for each in numbers):
            raise StateUnavailable("a partition is built here just now")
        return stores.some_at(epoch, numbers)

    def _journal(self) -> DeltaJournal:
        directory = DataDirectory(self._data)
        if (name := directory.app_name) is None:
            raise StateUnavailable("the journal does not exist yet")
        return directory.open_journal_of(name)

    def _stores_of(self, journal: DeltaJournal) -> Stores:
        directory = DataDirectory(self._data)
        return directory.open_stores(journal, folder=self._root, elsewhere=HeldHere())


def start_answering(
    credentials: bytes, data: Path, root: Path, leave: Callable[[int], object]
) -> tuple[int, int]:
    """Fork the process that answers the hosts of a run; return its id and its port.

    Call it in a process of one thread. The process ends with the caller's.

    Args:
        leave: Is called in it with the descriptor of the only socket that it needs.
    """
    parent = os.getpid()
    with closing(socket.create_server(("", 0))) as listener:
        port = listener.getsockname()[1]
        if (pid := os.fork()) == 0:
            try:
                end_with_parent(parent)
                leave(listener.fileno())
                _keep_answering(listener, credentials, data, root)
            finally:
                os._exit(os.EX_OK)
    return pid, port


def stop_answering(pid: int) -> None:
    """End the process that answers."""
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _keep_answering(listener: socket.socket, credentials: bytes, data: Path, root: Path) -> None:
    """Answer in a child process, and in another one if that dies: a damaged store may kill it."""
    parent = os.getpid()
    while True:
        if (pid := os.fork()) == 0:
            try:
                end_with_parent(parent)
                serve_rows(listener, credentials, Holder(data, root))
            finally:
                os._exit(os.EX_OK)
        os.waitpid(pid, 0)
        _log.warning("the process has ended that gives rows to other hosts; it starts again")
        time.sleep(_RESTART_S)


def serve_rows(listener: socket.socket, credentials: bytes, holder: Holder) -> None:
    """Answer those that show the certificate of the run, until the listener is closed."""
    context = context_of(credentials, is_driver=True)

    def attend(channel: socket.socket) -> None:
        with suppress(OSError, EOFError, msgspec.MsgspecError), closing(channel):
            channel.settimeout(ANSWER_S)
            watch(channel)
            with closing(TlsFrames(context.wrap_socket(channel, server_side=True))) as frames:
                while True:
                    question = _decode_question(frames.recv_bytes(_QUESTION_BYTES_MAX))
                    frames.send_bytes(_encode(holder.answer(question)))

    while True:
        try:
            listener.settimeout(_IDLE_S)
            channel, _ = listener.accept()
        except TimeoutError:
            holder.rest()
            continue
        except OSError:  # closed
            return
        threading.Thread(target=attend, args=(channel,), name="penstock-rows", daemon=True).start()


def ask_to_hold(
    addresses: Sequence[Address], credentials: bytes, question: Hold, stopping: threading.Event
) -> bool:
    """Let a host build its partitions; say whether it has. It may take as long as it needs."""
    answer: Answer = Refusal("the driver stops")
    try:
        with closing(_first_connected(addresses, credentials)) as frames:
            frames.send_bytes(_encode(question))
            while not stopping.is_set():
                if frames.poll(1.0):
                    answer = _decode_answer(frames.recv_bytes())
                    break
    except (OSError, EOFError, msgspec.MsgspecError) as error:
        answer = Refusal(cause_text(error))
    if isinstance(answer, Refusal):
        facts = {"cause": answer.why, "partitions": len(question.numbers)}
        _log.warning("a host has not built its part of the state; it is asked again", extra=facts)
    return isinstance(answer, Built)


class FarReader:
    """Reads a partition of other hosts at one epoch; see `penstock.state.stores.PartitionReader`.

    Attributes:
        rows: The sealed rows that are known, by the bytes of their keys.
        taken: The reader of this host's own store, once no holder has answered.
    """

    __slots__ = ("_far", "_take", "epoch", "fetch", "rows", "spec", "taken")

    def __init__(
        self,
        far: "FarRows",
        spec: PartitionSpec,
        epoch: Epoch,
        take: Callable[[], LmdbReader],
        rows: dict[bytes, bytes | None],
    ) -> None:
        self._far = far
        self._take = take
        self.spec, self.epoch, self.rows = spec, epoch, rows
        self.fetch: Callable[[bytes], bytes | None] = rows.get
        self.taken: LmdbReader | None = None

    def get(self, key: EntityKey) -> bytes | None:
        """Return the state of an entity."""
        if self.epoch == BEFORE_FIRST:
            return None
        raw = key.encode()
        if raw not in self.rows and self.taken is None:
            self._far.fetch([key])
        if self.taken is not None:
            return self.taken.get(key)
        if raw not in self.rows:  # its batch was too large for an answer, or to be kept
            self._far.fetch([key], alone=True)
            return self.get(key)
        stored = self.rows[raw]
        return None if stored is None else record.unseal(raw, stored)

    def rest(self, raw: bytes) -> bytes | None:
        """Return the state of a key that no row is known of."""
        return self.get(EntityKey(raw.decode()))

    def keys(self, prefix: str) -> list[EntityKey]:
        """Return the entities whose keys begin with a prefix, in order."""
        if self.epoch == BEFORE_FIRST:
            return []
        keys = None if self.taken is not None else self._far.keys(self, prefix)
        return self.take().keys(prefix) if keys is None else keys

    def items(self) -> Iterator[tuple[EntityKey, bytes]]:
        """Yield every entity in key order; all rows are wanted, so this host builds the partition."""
        return self.take().items()

    def items_of(self, prefix: str, after: str = "") -> Iterator[tuple[EntityKey, bytes]]:
        """Yield the entities whose keys begin with a prefix, in key order; as `items`."""
        return self.take().items_of(prefix, after)

    def take(self) -> LmdbReader:
        """Build the partition on this host, and read it from there."""
        if self.taken is None:
            self.taken = self._take()
        return self.taken


class FarRows:
    """Asks the other hosts for rows, for one worker; see `penstock.state.stores.Elsewhere`.

    Attributes:
        batches: The questions so far.
        asked: The rows that they asked for.

    Args:
        credentials: Those of the run.
        own: The name of this host.
        references: Returns the entities that a row refers to.
    """

    def __init__(
        self,
        credentials: bytes,
        own: str,
        references: Callable[[EntityKey, bytes], Iterable[EntityKey]],
    ) -> None:
        self._credentials = credentials
        self._own = own
        self._references = references
        self._peers = Peers(0, [])
        self._names: tuple[str, ...] = ()
        self._connections: dict[str, TlsFrames] = {}
        self._passed: dict[str, float] = {}  # holders, and until when they are not asked
        self._readers: dict[int, FarReader] = {}
        self._at: tuple[Epoch, int] = BEFORE_FIRST, 0
        self._rows: dict[int, dict[bytes, bytes | None]] = {}
        self._kept = 0
        self._wanted: dict[EntityKey, None] = {}
        self.batches = self.asked = 0

    def use(self, peers: Peers) -> bool:
        """Use these hosts from now on; say whether they are others than before."""
        if peers == self._peers:
            return False
        self._peers = peers
        self._names = tuple(sorted(peer.host for peer in peers.hosts))
        self._passed.clear()
        self.close()
        # Partitions that are on this host now get no reader: those of an earlier epoch must not be taken for theirs.
        self._at = BEFORE_FIRST, 0
        self._readers, self._rows, self._kept = {}, {}, 0
        self._wanted.clear()
        return True

    def close(self) -> None:
        """Close the connections; a further question opens them again."""
        for host in list(self._connections):
            self._close(host)

    def placement(self, partitions: int) -> Placement:
        """Return the hosts of each partition."""
        return placed(self._names, partitions, self._peers.copies)

    def is_own(self, spec: PartitionSpec) -> bool:
        """Say whether this host holds a partition; it does if no host is known."""
        hosts = self.placement(spec.partitions)[spec.partition]
        return self._own in hosts or not hosts

    def keeps(self, spec: PartitionSpec) -> bool:
        """Say whether this host holds a partition, or will hold it soon."""
        coming = held_by(self._own, self._peers.next, spec.partitions, self._peers.copies)
        return self.is_own(spec) or spec.partition in coming

    def has_others(self, spec: PartitionSpec) -> bool:
        """Say whether another host holds a partition."""
        return any(host != self._own for host in self.placement(spec.partitions)[spec.partition])

    def reader(
        self, spec: PartitionSpec, epoch: Epoch, take: Callable[[], LmdbReader]
    ) -> FarReader:
        """Return a reader of a partition; it is valid until the next reader of the same partition."""
        if self._at != (epoch, spec.partitions):
            self._at = epoch, spec.partitions
            self._readers, self._rows, self._kept = {}, {}, 0
            self._wanted.clear()
        rows = self._rows.setdefault(spec.partition, {})
        reader = self._readers[spec.partition] = FarReader(self, spec, epoch, take, rows)
        return reader

    def prefetch(self, keys: Iterable[EntityKey], get: Callable[[EntityKey], bytes | None]) -> None:
        """Ask for entities in one batch, and for those that their rows refer to in another one.

        Args:
            keys: The entities that the requests of a round name.
            get: Reads an entity, here or elsewhere.
        """
        if not self._readers or self._at[0] == BEFORE_FIRST:
            return
        keys = dict.fromkeys(keys)
        route = bucket_owners(self._at[1])
        self.fetch(keys)
        for key in keys:
            if _place(key, route) not in self._readers and (row := get(key)) is not None:
                self._wanted.update(dict.fromkeys(self._references(key, row)))
        self.fetch(())

    def reach(self) -> None:
        """Ask for a row of each partition that other hosts hold, whether it exists or not.

        Raises:
            StateUnavailable: No holder answers, and this host cannot build the partition at the epoch.
        """
        if self._at[0] != BEFORE_FIRST:
            self.fetch(key_in_each(self._at[1]), alone=True)

    def fetch(self, keys: Iterable[EntityKey], *, alone: bool = False) -> None:
        """Ask for entities, and unless `alone` for the references of all rows so far, in one batch for each host.

        Raises:
            StateUnavailable: No holder answers, and this host cannot build the partition at the epoch.
        """
        every = dict.fromkeys(keys)
        if not alone:
            every |= self._wanted
            self._wanted.clear()
        if self._kept > _KEPT_BYTES_MAX:
            for rows in self._rows.values():
                rows.clear()
            self._kept = 0
        missing = self._missing(every)
        for _ in range(self._peers.copies):
            if missing:
                missing = self._asked_once(missing)
        for place in missing:
            self._readers[place].take()

    def _missing(self, keys: Iterable[EntityKey]) -> dict[int, list[EntityKey]]:
        """Return the entities that others must be asked for, by their partitions."""
        route = bucket_owners(self._at[1])
        missing: dict[int, list[EntityKey]] = {}
        for key in keys:
            reader = self._readers.get(place := _place(key, route))
            if reader is not None and reader.taken is None and key.encode() not in reader.rows:
                missing.setdefault(place, []).append(key)
        return missing

    def keys(self, reader: FarReader, prefix: str) -> list[EntityKey] | None:
        """Return the keys of a partition with a prefix; None if no holder answers."""
        question = AskKeys(reader.epoch, reader.spec.partitions, reader.spec.partition, prefix)
        for _ in range(self._peers.copies):
            host = self._holder_of(reader.spec.partition)
            if host is None:
                break
            answer = self._answers({host: question}).get(host)
            if isinstance(answer, Keys):
                return answer.keys
        return None

    def _asked_once(self, missing: dict[int, list[EntityKey]]) -> dict[int, list[EntityKey]]:
        """Ask the first holder of each partition; return the questions for the next holders."""
        wanted: dict[str, list[EntityKey]] = {}
        for place, keys in list(missing.items()):
            host = self._holder_of(place)
            if host is None:
                self._readers[place].take()
                del missing[place]
            else:
                wanted.setdefault(host, []).extend(keys)
        epoch, partitions = self._at
        questions = {host: AskRows(epoch, partitions, keys) for host, keys in wanted.items()}
        answers = self._answers(questions)
        left: set[EntityKey] = set()
        for host, keys in wanted.items():
            answer = answers.get(host)
            if not isinstance(answer, Rows) or not self._keep(host, keys, answer.rows):
                left.update(keys)
        rest = {place: [key for key in keys if key in left] for place, keys in missing.items()}
        return {place: keys for place, keys in rest.items() if keys}

    def _keep(self, host: str, keys: Sequence[EntityKey], rows: Sequence[bytes | None]) -> bool:
        """Take the rows of an answer; say whether they fit the question."""
        route = bucket_owners(self._at[1])
        for key, stored in zip(keys, rows, strict=False):
            raw = key.encode()
            if stored is not None:
                try:
                    row = record.unseal(raw, stored)
                except Corrupt as error:
                    self._pass_over(host, error)
                    return False
                self._kept += len(stored)
                self._wanted.update(dict.fromkeys(self._references(key, row)))
            self._readers[_place(key, route)].rows[raw] = stored
        return True

    def _holder_of(self, partition: int) -> str | None:
        """Return the first holder of a partition that may be asked."""
        now = time.monotonic()
        for host in self.placement(self._at[1])[partition]:
            if host != self._own and self._passed.get(host, 0.0) <= now:
                return host
        return None

    def _answers(self, questions: Mapping[str, Question]) -> dict[str, Answer]:
        """Ask several hosts at the same time; a host without an answer is passed over."""
        self.batches += len(questions)
        asked = []
        answers: dict[str, Answer] = {}
        for host, question in questions.items():
            self.asked += len(question.keys) if isinstance(question, AskRows) else 1
            with self._passing_over(host):
                self._connected(host).send_bytes(_encode(question))
                asked.append(host)
        for host in asked:
            with self._passing_over(host):
                frames = self._connections[host]
                if not frames.poll(ANSWER_S):
                    raise TimeoutError(f"no answer after {ANSWER_S:g} s")
                answer = _decode_answer(frames.recv_bytes())
                if isinstance(answer, Refusal):
                    raise StateUnavailable(answer.why)
                answers[host] = answer
        return answers

    def _passing_over(self, host: str) -> "_PassingOver":
        return _PassingOver(partial(self._pass_over, host), partial(self._close, host))

    def _pass_over(self, host: str, cause: BaseException) -> None:
        self._close(host)
        self._passed[host] = time.monotonic() + PASSED_S
        facts = {"host": host, "cause": cause_text(cause), "epoch": self._at[0]}
        _log.warning("a host does not give the rows that it holds, and is passed over", extra=facts)

    def _connected(self, host: str) -> TlsFrames:
        if host not in self._connections:
            (peer,) = (peer for peer in self._peers.hosts if peer.host == host)
            if not peer.addresses:
                raise ConnectionError("it has no task")
            self._connections[host] = _first_connected(peer.addresses, self._credentials)
        return self._connections[host]

    def _close(self, host: str) -> None:
        if (frames := self._connections.pop(host, None)) is not None:
            frames.close()


class _PassingOver:
    """Passes a host over after an error of it, and drops its connection after any other one.

    A handler that is interrupted while it waits leaves a connection with half of an answer.
    """

    def __init__(
        self, pass_over: Callable[[BaseException], None], close: Callable[[], None]
    ) -> None:
        self._pass_over, self._close = pass_over, close

    def __enter__(self) -> None:
        pass

    def __exit__(self, error_type: object, error: BaseException | None, trace: object) -> bool:
        if error is None:
            return False
        if isinstance(error, OSError | EOFError | msgspec.MsgspecError | StateUnavailable):
            self._pass_over(error)
            return True
        self._close()
        return False


def _first_connected(addresses: Sequence[Address], credentials: bytes) -> TlsFrames:
    """Connect to the first process of a host that answers."""
    failure: OSError = ConnectionError("it has no task")
    for address in addresses:
        try:
            return connect(address, credentials, CONNECT_S)
        except OSError as error:
            failure = error
    raise failure


@lru_cache(4)
def key_in_each(partitions: int) -> tuple[EntityKey, ...]:
    """Return a key of each partition, in their order."""
    route = bucket_owners(partitions)
    keys: dict[int, EntityKey] = {}
    numbers = count()
    while len(keys) < partitions:
        key = EntityKey(f"$reach/{next(numbers)}")
        keys.setdefault(_place(key, route), key)
    return tuple(keys[place] for place in range(partitions))


def _place(key: EntityKey, route: Sequence[int]) -> int:
    return route[bucket_of(key)]
