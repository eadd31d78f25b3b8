"""A journal as one Delta Lake table in a directory.

The table is partitioned by the column `kind` and has the columns of all kinds; a file holds those
of its own kind, and Delta readers fill the others with null. Version 0 creates the table; version
*n + 1* is epoch *n*, with the application transaction version *n*. Any Delta reader sees the
committed epochs as rows. No other program may write to the table.

It implements the port on a shared root: a folder, or an object store. This module joins the parts: `commits`
and `action` (the Delta log), `parquet` (part files), `segments` and `compaction` (older epochs),
`checkpoint` and `shapes`.
"""

import secrets
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import BEFORE_FIRST, ONLY_PARTITION, Epoch, Lsn, is_system
from penstock.base.subject_keys import SubjectKeys
from penstock.errors import ConfigError, Corrupt, Erased, OperationalError
from penstock.files.durable import done_together, storage
from penstock.files.local_root import rooted
from penstock.files.shared_root import SharedRoot
from penstock.journal import action, checkpoint, parquet
from penstock.journal.action import CommitFlaw, MetaData
from penstock.journal.api import (
    DEFAULT_COMPACTION,
    SCHEMAS,
    Commit,
    CompactionPolicy,
    CompactionResult,
    Part,
    PartKind,
    StepObserver,
    ignore_step,
)
from penstock.journal.commits import LOG, CommitLog
from penstock.journal.compaction import Compaction
from penstock.journal.parquet import missing_epoch, rows_by_epoch
from penstock.journal.segments import Segments
from penstock.journal.shapes import Shapes
from penstock.model.entity_type import EntityType
from penstock.model.personal import ERASED
from penstock.model.request import Failure, encode_failure
from penstock.model.schema_version import Versions
from penstock.model.sealed_value import (
    FIRST_BYTES,
    REPLY,
    open_value,
    seal_value,
    subject_of_request,
)
from penstock.model.shape import Shape
from penstock.model.versions.schema_change import SchemaChange

# A request with encrypted arguments names its subject (`model.sealed_value`), and its reply gets the same key.


_REPLY: Final = "reply"
_ERASED_REPLY: Final = b"\xa8" + ERASED.encode()
_FIRST_BYTES: Final = pa.array(FIRST_BYTES, pa.binary())


def seal_replies(keys: SubjectKeys, rows: pa.Table) -> pa.Table:
    """Return rows of requests with the replies encrypted whose requests concern a subject."""
    subjects = [subject_of_request(body) for body in rows["request"].to_pylist()]
    if not any(subjects):
        return rows
    sealed = [
        data if subject is None else seal_value(keys, subject, data, REPLY)
        for subject, data in zip(subjects, rows[_REPLY].to_pylist(), strict=True)
    ]
    return _with_replies(rows, sealed)


def open_replies(keys: SubjectKeys, rows: pa.Table) -> pa.Table:
    """Return rows of requests with readable replies; the reply to an erased subject is `<erased>`.

    Raises:
        Corrupt: A reply was changed, or is encrypted with other keys.
    """
    if not _may_be_sealed(rows):
        return rows
    errors = rows["error"].to_pylist() if "error" in rows.column_names else [None] * len(rows)
    replies = zip(rows[_REPLY].to_pylist(), errors, strict=True)
    return _with_replies(rows, [_opened(keys, data, error) for data, error in replies])


def _may_be_sealed(rows: pa.Table) -> bool:
    """Say whether a reply may be encrypted."""
    if _REPLY not in rows.column_names:
        return False
    firsts = pc.binary_slice(rows[_REPLY], 0, 1)
    return bool(pc.any(pc.is_in(firsts, value_set=_FIRST_BYTES)).as_py())


def _opened(keys: SubjectKeys, data: bytes | None, error: str | None) -> bytes | None:
    if data is None:
        return None
    try:
        return open_value(keys, data, REPLY)
    except Erased:
        if error is None:
            return _ERASED_REPLY
        return encode_failure(Failure(error, Erased.__name__, ERASED))


def _with_replies(rows: pa.Table, replies: list[Any]) -> pa.Table:
    place = rows.schema.get_field_index(_REPLY)
    return rows.set_column(place, rows.schema.field(place), pa.array(replies, pa.binary()))


_ANSWERED: Final = (PartKind.TRANSACTIONS, PartKind.SENT)
_REST_MS: Final = 100
_FEW: Final = 256
"""Requests that are decoded in less time than a store needs for an answer."""
_READ_TOGETHER: Final = 16
"""The parts that are asked for at the same time."""

AwaitRecord = Callable[[Lsn, int], Lsn]
"""Waits until the log has records behind a position, for so many milliseconds, and returns its end: `Log.wait`."""

SECRET_BYTES: Final = 32
WRITTEN_BYTES_MAX: Final = 4 << 20
SMALL_PART_BYTES: Final = 64 << 10
KEPT_BYTES_MAX: Final = 32 << 20


class WrittenChanges:
    """The changes that a worker has written last, if they are small: the same worker then brings them to the stores."""

    def __init__(self) -> None:
        self._part: Part | None = None
        self._rows: pa.Table | None = None

    def keep(self, part: Part, rows: pa.Table) -> None:
        """Keep the rows of a part in the place of the former ones."""
        is_small = rows.get_total_buffer_size() <= WRITTEN_BYTES_MAX
        self._part, self._rows = (part, rows) if is_small else (None, None)

    def rows_of(self, part: Part) -> pa.Table | None:
        """Return the rows of a part, if they are kept."""
        # Its name has a random token, and it has the checksum of the bytes: a commit names these rows, or others.
        return self._rows if part == self._part else None


class SmallParts:
    """The whole rows of small parts that a reader has read: a reader of history comes to the same epochs again.

    The parts that it has read first are kept, up to `KEPT_BYTES_MAX` bytes of rows.
    """

    def __init__(self) -> None:
        self._rows: dict[Part, pa.Table] = {}
        self._left = KEPT_BYTES_MAX

    def rows_of(self, part: Part) -> pa.Table | None:
        """Return the rows of a part, if they are kept."""
        return self._rows.get(part)

    def decoded(self, part: Part, data: bytes, columns: Sequence[str] | None) -> pa.Table:
        """Decode a part as `parquet.decode` does, and keep all its columns, if it is small."""
        if part.size > SMALL_PART_BYTES or part.size > self._left:
            return parquet.decode(part, data, columns)
        # Of a few rows, all columns take the time of one.
        rows = parquet.decode(part, data, SCHEMAS[part.kind].names)
        self._left -= max(part.size, rows.nbytes)
        self._rows[part] = rows
        return rows if columns is None else rows.select(list(columns))


class DeltaJournal:
    """A journal in a shared root, which is created if it is missing; opening reads one small file.

    Any number of processes may open it at once; a second driver is fenced at its first commit. No
    file stays open. With `classes` it guarantees that rows are stored in their shapes, and that the classes read rows
    of earlier versions. Without them, for copies and counts, shapes are not checked.

    Raises:
        Corrupt: The journal's start is missing or damaged.
    """

    def __init__(
        self,
        place: SharedRoot | Path | str,
        app: str,
        classes: Mapping[str, EntityType] | None = None,
        secret: bytes | None = None,
        dropped: Collection[str] = (),
    ) -> None:
        """Open or create.

        Args:
            place: The root of the journal, or its folder.
            secret: The secret of a new journal that continues the history of another journal; None
                draws a random secret.
            dropped: The classes whose rows are stored and which the application may lack.
        """
        self._root = rooted(place)
        self._app = app
        self._shapes = Shapes(self._root, classes or {}, dropped)
        self._knows_classes = classes is not None
        self._segments = Segments(self._root)
        self._commits = CommitLog(self._root, app, self.merged)
        self._last: Commit | None = None
        self._read: Commit | None = None  # read last: the stores of a host ask for the same one
        self.keys: Callable[[], SubjectKeys | None] = lambda: None
        """Returns the keys of personal data; without them, replies about persons stay encrypted."""
        self.written: WrittenChanges | None = None
        """Where a worker keeps the changes that it has written; without it, each part is read from its file."""
        self.small_parts: SmallParts | None = None
        """Where a reader that comes to the same epochs again keeps small parts."""
        self.is_for_other_hosts = False
        """Whether another host commits the parts that are written here: it cannot sync files of this host."""
        self.on_close: Callable[[], object] = lambda: None
        self.await_record: AwaitRecord | None = None
        """Set where each look at the journal is paid for: who waits for an epoch looks seldom while the log has no record for it."""
        self._identity, self._secret = self._open(secret)

    @property
    def identity(self) -> str:
        """The Delta table's id, which is drawn when it is created."""
        return self._identity

    @property
    def secret(self) -> bytes:
        """The secret that was drawn when the journal was created."""
        return self._secret

    def write(self, part_kind: PartKind, rows: pa.Table, name: str) -> Part:
        """Write a Parquet file; touches neither the Delta log nor other parts.

        Raises:
            ClassChanged: Another process has stored a class for the first time, in another shape.
        """
        (written,) = self.write_all({part_kind: rows}, name)
        return written

    def write_all(self, tables: Mapping[PartKind, pa.Table], name: str) -> list[Part]:
        """Write Parquet files together; raises as `write`."""
        self._commits.check_open()
        encoded = [self._encoded(part_kind, rows, name) for part_kind, rows in tables.items()]
        written = [part for part, _ in encoded]
        with storage(f"write part {written[0].path}" if written else "write no part"):
            files = {part.path: data for part, data in encoded}
            self._root.add_all(files, at_once=self.is_for_other_hosts)
        for part in written:
            if self.written is not None and part.kind is PartKind.CHANGES:
                self.written.keep(part, tables[part.kind])
        return written

    def _encoded(self, part_kind: PartKind, rows: pa.Table, name: str) -> tuple[Part, memoryview]:
        """Return a part and its bytes, after its classes are recorded."""
        if part_kind is PartKind.CHANGES and self._knows_classes:
            with storage("record how classes are stored"):
                names: list[str] = pc.unique(rows["entity"]).to_pylist()
                fresh = self._shapes.unrecorded(name for name in names if not is_system(name))
                if fresh:  # else no look at the Delta log, which may sync a directory
                    self._shapes.record(fresh, self._commits.newest() + 1)
        if part_kind in _ANSWERED and self._may_concern_subjects(rows):
            keys = self.keys()
            if keys is not None:
                rows = seal_replies(keys, rows)
        return parquet.encode(part_kind, rows, name)

    def _may_concern_subjects(self, rows: pa.Table) -> bool:
        """Say whether requests may concern subjects."""
        # The epoch waits for the store's answer whether there are keys, so it asks only if a request needs them.
        if not self._root.is_far or rows.num_rows > _FEW:
            return True
        bodies = rows["request"].to_pylist() if "request" in rows.column_names else []
        return any(map(subject_of_request, bodies))

    def shapes(self) -> dict[str, Shape]:
        """Return the shape of each class that the journal has rows of.

        Raises:
            Corrupt: The file of shapes is missing or damaged.
        """
        return {name: versions[-1].shape for name, versions in self.schemas().items()}

    def schemas(self) -> dict[str, Versions]:
        """Return the schema versions of each class that the journal has rows of, the oldest first.

        Raises:
            Corrupt: The file of shapes is missing or damaged.
        """
        with storage("read how classes are stored"):
            return self._shapes.versions()

    def schema_changes(self) -> list[SchemaChange]:
        """Return the compatible changes of classes that no driver has deployed; nothing is written.

        Raises:
            Corrupt: The file of shapes is missing or damaged.
        """
        with storage("read how classes are stored"):
            return self._shapes.check(self._commits.newest() + 1)

    def deploy(self) -> list[SchemaChange]:
        """Store the new versions of changed classes; a driver calls it, with its lock, before its first epoch.

        Returns:
            The changes that are in force now, and were not before.

        Raises:
            Corrupt: The file of shapes is missing or damaged.
        """
        with storage("record how classes are stored"):
            return self._shapes.deploy(self._commits.newest() + 1)

    def commit(self, commit: Commit) -> None:
        """Create the epoch's file in the Delta log, as the port says."""
        for part in commit.parts:
            written = parquet.epoch_of(part.path)
            assert written in (None, commit.epoch), f"{part.path} is not of epoch {commit.epoch}"
        if not self._root.answers_prove:
            with storage(f"look at the parts of epoch {commit.epoch}"):
                for part in commit.parts:
                    if self._root.size(part.path) != part.size:
                        how = "is missing or changed, so nothing is committed"
                        raise parquet.damaged_part(part, how)
        self._commits.put(commit)
        self._last = commit

    def committed(self, epoch: Epoch) -> None:
        """Take note that an epoch is committed, and durable: its driver says so, and no sync of the Delta log has to prove it."""
        self._commits.committed(epoch)

    def last(self) -> Commit | None:
        """Return the newest commit; costs a look at one file name if there is no new one."""
        newest = self._commits.newest()
        last = self._last
        if newest < 0:
            return None
        if last is None or last.epoch != newest:
            last = self._last = self._get(newest)
        return last

    def known(self) -> Commit | None:
        """Return the newest commit that is known here, as the port says."""
        return self._last

    def first(self) -> Epoch:
        """Return the oldest epoch that is held."""
        self._segments.look()
        return self._segments.first

    def merged(self) -> Epoch:
        """Return the newest epoch that was compacted."""
        self._segments.look()
        return self._segments.last

    def commits(self, after: Epoch, upto: Epoch | None = None) -> Iterator[Commit]:
        """Yield the commits of (after, upto], as the port says.

        Raises:
            Corrupt: A commit is missing or damaged.
        """
        end = upto
        if end is None or end > self._commits.known:  # else a look for newer epochs is useless
            newest = self._commits.newest()
            end = newest if end is None else min(end, newest)
        begin = max(after + 1, self.first())
        return (self._get(Epoch(epoch)) for epoch in range(begin, end + 1))

    def wait(
        self, after: Epoch, timeout_ms: int, ahead: Callable[[Commit], object] | None = None
    ) -> Commit | None:
        """Block until epoch `after + 1` exists and return its commit, as the port says."""
        following = Epoch(after + 1)
        meanwhile = None if ahead is None else (lambda: ahead(self._get(following)))
        deadline = time.monotonic() + timeout_ms / 1_000
        while (look_ms := self._due(following, deadline)) is None or not self._commits.wait(
            following, look_ms, meanwhile
        ):
            if time.monotonic() >= deadline:
                return None
        commit = self._get(following)
        if following == self._commits.known:
            self._last = commit  # the next wait compares its positions with the log
        return commit

    def _due(self, following: Epoch, deadline: float) -> int | None:
        """Wait, but not for long, until a look for an epoch is due; return for how long to look, None if none is due yet."""
        commits = self._commits
        commits.check_open()
        left_s = max(0.0, deadline - time.monotonic())
        if self.await_record is None or commits.known >= following:
            return round(left_s * 1_000)
        rest_s = min(left_s, max(0.0, commits.rests_until_s - time.monotonic()))
        # Not for the whole rest, because another thread of this process may find the epoch meanwhile.
        rest_ms = min(round(rest_s * 1_000), _REST_MS)
        try:
            reached = self._reached()
            if self.await_record(reached, rest_ms) > reached:
                return round(max(0.0, deadline - time.monotonic()) * 1_000)
        except OperationalError:  # a log that cannot be read says nothing
            return round(left_s * 1_000)
        return 0 if time.monotonic() >= commits.rests_until_s else None

    def _reached(self) -> Lsn:
        """Return the log position after the newest epoch that is known."""
        known = self._commits.known
        if known == BEFORE_FIRST:
            return Lsn(0)
        if self._last is None or self._last.epoch != known:
            self._last = self._get(known)
        return self._last.positions.get(ONLY_PARTITION, Lsn(0))

    def read(self, part: Part, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a part's rows, also if they lie in a segment; every byte is checked first."""
        return self._opened(part.kind, self.stored(part, columns))

    def read_all(
        self, parts: Sequence[Part], columns: Sequence[str] | None = None
    ) -> list[pa.Table]:
        """Return the rows of parts; a far root is asked for several of them at the same time."""
        self._commits.check_open()
        asked = [part for part in parts if self._root.is_far and self._kept(part) is None]
        data: dict[Part, bytes] = {}

        def ask(part: Part) -> None:
            with suppress(FileNotFoundError):  # it lies in a segment, or `read` says what is wrong
                data[part] = self._root.get(part.path)

        for first in range(0, len(asked) if len(asked) > 1 else 0, _READ_TOGETHER):
            several = asked[first : first + _READ_TOGETHER]
            with storage(f"read part {several[0].path} and others"):
                done_together([partial(ask, part) for part in several])
        return [
            self._opened(part.kind, self._stored(part, columns, data.get(part))) for part in parts
        ]

    def stored(self, part: Part, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a part's rows as `read` does, and leave replies encrypted."""
        return self._stored(part, columns)

    def _stored(
        self, part: Part, columns: Sequence[str] | None, data: bytes | None = None
    ) -> pa.Table:
        """Return a part's rows, as `stored` does; from its bytes, if they are read already."""
        self._commits.check_open()
        if (rows := self._kept(part)) is not None:
            return rows if columns is None else rows.select(list(columns))
        if data is None:
            with storage(f"read part {part.path}"):
                try:
                    data = self._root.get(part.path)
                except FileNotFoundError:
                    return self._merged_rows(part, columns)
        kept = self.small_parts
        decode = parquet.decode if kept is None else kept.decoded
        return decode(part, data, columns)

    def _kept(self, part: Part) -> pa.Table | None:
        """Return the rows of a part that this process has in memory."""
        rows = None if self.written is None else self.written.rows_of(part)
        if rows is None and self.small_parts is not None:
            rows = self.small_parts.rows_of(part)
        return rows

    def rows(
        self, part_kind: PartKind, after: Epoch, upto: Epoch, columns: Sequence[str]
    ) -> Iterator[tuple[Epoch, pa.Table]]:
        """Yield the rows of the epochs of (after, upto], one table for each merged segment."""
        while after < upto and (segment := self._segments.covering(Epoch(after + 1))) is not None:
            last = min(segment.last, upto)
            if segment.merged:
                rows = self._segments.rows(segment, part_kind, Epoch(after + 1), last, columns)
                yield last, self._opened(part_kind, rows)
            else:
                yield from rows_by_epoch(self, part_kind, after, last, columns)
            after = last
        if after < upto:
            yield from rows_by_epoch(self, part_kind, after, upto, columns)

    def checkpoint(self) -> None:
        """Write a Delta checkpoint, as the port says; the commits stay."""
        checkpoint.checkpoint(self._commits, self._segments, self._app)

    def compact(
        self, keep: CompactionPolicy = DEFAULT_COMPACTION, reached: StepObserver = ignore_step
    ) -> CompactionResult:
        """Merge the files of older epochs, as the port says."""
        self._commits.check_open()
        return self._compaction(reached).run(self, keep)

    def forget(self, before: Epoch, reached: StepObserver = ignore_step) -> Epoch:
        """Remove segments of old epochs, as the port says."""
        self._commits.check_open()
        return self._compaction(reached).forget(before)

    def _compaction(self, reached: StepObserver) -> Compaction:
        return Compaction(self._root, self._app, self._commits, self._segments, reached)

    @contextmanager
    def quiesced(self) -> Iterator[None]:
        """Hold the internal locks, as the port says."""
        with self._commits.quiesced(), self._segments.quiesced():
            yield

    def close(self) -> None:
        """Refuse all further use, and wake the waiting threads."""
        self._commits.close()
        self.on_close()

    def _opened(self, part_kind: PartKind, rows: pa.Table) -> pa.Table:
        # As in `_may_concern_subjects`.
        if part_kind not in _ANSWERED or (self._root.is_far and not _may_be_sealed(rows)):
            return rows
        keys = self.keys()
        return rows if keys is None else open_replies(keys, rows)

    def _get(self, epoch: Epoch) -> Commit:
        """Return the commit of an epoch that exists."""
        read = self._read
        if read is None or read.epoch != epoch:
            read = self._read = self._found(epoch)
        return read

    def _found(self, epoch: Epoch) -> Commit:
        """Return the commit of an epoch that exists, from a segment or from its own file."""
        segment = self._segments.covering(epoch)
        if segment is not None:
            return segment.commit(epoch)
        first = self._segments.first
        if self._root.keeps_s and epoch < first and epoch < self._segments.removable():
            # A driver that slept for long may have created a removed name again.
            raise missing_epoch(epoch)
        try:
            return self._commits.get(epoch)
        except Corrupt:  # it may have been merged since this process listed the segments
            self._segments.refresh()
            segment = self._segments.covering(epoch)
            if segment is None and epoch < self._segments.first:
                raise missing_epoch(epoch) from None
            if segment is None:
                raise
            return segment.commit(epoch)

    def _merged_rows(self, part: Part, columns: Sequence[str] | None) -> pa.Table:
        """Return the rows of a part whose file was removed."""
        if not part.rows:
            rows = SCHEMAS[part.kind].empty_table()
            return rows if columns is None else rows.select(list(columns))
        epoch = parquet.epoch_of(part.path)
        if epoch is not None:
            for _ in range(2):
                table = self._segments.part_rows(epoch, part.path, columns)
                if table is not None:
                    return table
                self._segments.refresh()
        raise parquet.damaged_part(part, "is missing")

    def _open(self, secret: bytes | None) -> tuple[str, bytes]:
        with storage(f"open the journal in {self._root}"):
            table = self._table()
            if table is None:
                self._create(secret or secrets.token_bytes(SECRET_BYTES))
                table = self._table()
        if table is None:
            raise Corrupt(
                f"the journal in {self._root} has no table metadata; put the file "
                f"{self._commits.name_of(BEFORE_FIRST)} back from a backup"
            )
        if table.name != self._app:
            raise ConfigError(
                f"the journal in {self._root} belongs to the application {table.name!r}, "
                f"not to {self._app!r}; give each application a directory of its own"
            )
        if table.configuration.get(action.FORMAT) != action.CONFIGURATION[action.FORMAT]:
            raise ConfigError(
                f"the journal in {self._root} is of an earlier Penstock, which stored entities without "
                "their shape; read it with that version, or give this version another directory: "
                "--data DIR"
            )
        if self._knows_classes:
            self.schema_changes()
        return table.id, action.secret_of(self._commits.text_of(BEFORE_FIRST))

    def _table(self) -> MetaData | None:
        return _table_of(self._commits)

    def _create(self, secret: bytes) -> None:
        self._root.make_folders(LOG, *(f"kind={part_kind}" for part_kind in PartKind))
        self._shapes.create()
        # Two journals never share an identity, so it is random.
        identity = str(uuid.UUID(bytes=secrets.token_bytes(16), version=4))
        now_ms = time.time_ns() // 1_000_000
        self._commits.create(action.table_text(self._app, identity, now_ms, secret))


def app_of(place: SharedRoot | Path) -> str | None:
    """Return the name of the application whose journal a root holds; None if it holds none.

    Raises:
        Corrupt: The journal is damaged.
    """
    table = _table_in(place)
    return None if table is None else table.name


def identity_of(place: SharedRoot | Path) -> str:
    """Return the identity of the journal that a root holds; empty if it holds none; raises as `app_of`."""
    table = _table_in(place)
    return "" if table is None else table.id


def _table_in(place: SharedRoot | Path) -> MetaData | None:
    with storage(f"open the journal in {place}"):
        return _table_of(CommitLog(rooted(place), ""))


def _table_of(commits: CommitLog) -> MetaData | None:
    """Return the metadata in version 0; None if it is missing or torn."""
    try:
        text = action.parse(commits.root.get(commits.name_of(BEFORE_FIRST)))
    except FileNotFoundError:
        return None
    if text is CommitFlaw.TORN:
        return None
    return action.table_of(commits.text_of(BEFORE_FIRST))
