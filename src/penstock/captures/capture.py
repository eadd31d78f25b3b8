"""The capture of a stream of changes: a process that takes the changes of a database, and appends them to the log.

It holds no truth. The stream has the position of the database with each atom, so a capture that was killed goes on behind it.
The database forgets its log only up to the changes that are durable here; before, the note about the slot has the position. Nothing of the
application waits for a capture.
"""

import gc
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any, Final

from msgspec.structs import replace

from penstock.base.ids import ONLY_PARTITION, Epoch, Lsn
from penstock.captures.atoms import AtomMaker, Ended, MadeAtom
from penstock.captures.pgoutput import Relation, message_in
from penstock.captures.postgres_source import (
    PostgresSource,
    ServerState,
    SlotState,
    SourceProblem,
    SourceRefused,
    Stopped,
    lsn_text,
)
from penstock.captures.table_form import SourceColumn, TableForm
from penstock.deployment.code_in_force import CodeInForce
from penstock.engine.streams.generator_positions import capture_key, capture_position_of
from penstock.errors import PenstockError
from penstock.files.layout import CAPTURES
from penstock.files.looks import Looks
from penstock.files.roots import shared_root, store_of
from penstock.journal.api import Journal, newest_epoch
from penstock.log.api import Entry, Log
from penstock.log.clock import wall_clock_us
from penstock.model.application import App
from penstock.model.streams.change_stream import ChangeStream, SourcePosition, atom_id
from penstock.orders.paused_workflows import newest_rows
from penstock.process import presence
from penstock.process.capture_files import (
    ROLE,
    CaptureReport,
    CaptureState,
    SlotNote,
    folder_of,
    read_capture_report,
    read_slot_note,
    write_capture_report,
    write_slot_note,
)
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.stop import Stop
from penstock.process.view_files import ViewOrders, held, read_orders

_log = logging.getLogger(__name__)

BACKLOG_BYTES: Final = 32 << 20
"""A capture waits while so many bytes of its own are in the log that no epoch has."""

_BATCH: Final = 1_000
_BATCH_BYTES: Final = 4 << 20
_WAIT_S: Final = 0.05
_TAKE_S: Final = 0.1
_IDLE_S: Final = 0.5
_CONFIRM_S: Final = 1.0
_REPORT_S: Final = 1.0
_LAG_S: Final = 5.0
_PAUSE_S: Final = 0.5
_PAUSE_MAX_S: Final = 15.0
_NICE: Final = 2
_NAME_MAX: Final = 63

_AGAIN: Final = "penstock capture snapshot {} reads the tables again"


class _Undeclared(Exception):
    """The application has no such stream of changes any more."""


class Capture:
    """Takes the changes of one stream; for one thread.

    Args:
        name: The name of the stream.
        code: Loads later deployments; None: the application stays as it was given.
    """

    _warned = ""

    def __init__(
        self,
        app: App,
        config: Config,
        name: str,
        journal: Journal,
        log: Log,
        code: CodeInForce | None = None,
    ) -> None:
        self._config = config
        self._data = config.data
        self._name = name
        self._journal = journal
        self._log = log
        self._code = code
        self._stop = threading.Event()
        self._source: PostgresSource | None = None
        self._maker: AtomMaker | None = None
        self._made: list[MadeAtom] = []
        self._backlog: deque[tuple[Lsn, int]] = deque()
        self._behind = 0
        self._sent = self._durable = self._confirmed = 0
        self._failures = 0
        self._orders = ViewOrders()
        self._looked_at = self._reported_at = self._lag_at = self._confirmed_at = float("-inf")
        self._looks = Looks(shared_root(self._data), _IDLE_S)
        former = read_capture_report(self._data, name)
        self._report = replace(
            former or CaptureReport(name, "", CaptureState.WAITING),
            rows=0,
            atoms=0,
            unfit=0,
            reason="",
            remedy="",
            pid=os.getpid(),
        )
        self._note: SlotNote | None = None
        self._stream: ChangeStream[Any] = app.topology.captures[name]
        self._use(app)

    def run(self, stop: threading.Event) -> None:
        """Take changes until the process is asked to stop, or the application has the stream no more."""
        self._stop = stop
        try:
            while not stop.is_set():
                try:
                    self._step()
                except (SourceProblem, PenstockError, OSError, MemoryError) as error:
                    self._wait_after(error)
        except (_Undeclared, Stopped):
            _log.info("capture.ends", extra={"capture": self._name})
        finally:
            self._close()
            self._tell(self._report.state, self._report.reason, self._report.remedy, is_due=True)

    # The work.

    def _step(self) -> None:
        """Do the next piece of work, or wait for some."""
        hindrance = self._hindrance()
        self._take_code()
        if hindrance is not None:
            self._close()
            self._tell(*hindrance)
            self._stop.wait(_IDLE_S)
            return
        if self._maker is None:
            self._begin()
            return
        assert self._source is not None, "it was opened by `_begin`"
        if self._is_behind():
            self._tell(
                CaptureState.WAITING, "the driver has not processed the changes that are in the log"
            )
            self._stop.wait(_WAIT_S)
        else:
            self._take(self._source, self._maker)
            self._failures = 0
            self._tell(CaptureState.FOLLOWING)
        self._confirm(self._source)
        self._look_at_lag(self._source)

    def _hindrance(self) -> tuple[CaptureState, str, str] | None:
        """Return the state, the reason and the remedy if nothing may be taken; None if changes are taken."""
        now = time.monotonic()
        if self._looks.is_due():
            self._orders = read_orders(self._data, self._name, CAPTURES)
            self._held = held(self._data)
        if now - self._looked_at >= _IDLE_S:
            self._looked_at = now
            self._is_elsewhere = bool(store_of(self._data)) and not presence.find(
                self._data, "driver"
            )
        if self._held is not None:
            return CaptureState.HELD, self._held.reason, "penstock resume"
        if self._orders.paused:
            why = f": {self._orders.reason}" if self._orders.reason else ""
            remedy = f"penstock capture resume {self._name}"
            return CaptureState.PAUSED, f"by {self._orders.by}{why}", remedy
        if self._is_elsewhere:
            return CaptureState.WAITING, "the driver runs on another host", ""
        if self._maker is not None and self._orders.rebuild > self._report.ordered:
            self._close()  # and the tables are read again
        return None

    def _take_code(self) -> None:
        """Use the code of the deployment in force."""
        code = self._code
        deployment = None if code is None else code.due(Epoch(newest_epoch(self._journal) + 1))
        if code is None or deployment is None:
            return
        with code.exchange(deployment):
            loaded = code.load(deployment)
            if loaded is not None:
                self._close()
                self._use(loaded.app)
            _log.info("capture.deployment", extra={"deployment": deployment.number})

    def _use(self, app: App) -> None:
        stream = app.topology.captures.get(self._name)
        if stream is None:
            raise _Undeclared
        self._stream = stream
        given = self._config.capture_settings(self._name)
        self._slot = given.slot or _slot_name(app.name, self._name)
        self._publication = given.publication or self._slot

    def _take(self, source: PostgresSource, maker: AtomMaker) -> None:
        """Take the messages that have come, and append their atoms to the log."""
        try:
            self._receive(source, maker)
        except SourceProblem:
            self._append()  # the transactions before a refused one must not wait for the remedy
            raise
        self._append()

    def _receive(self, source: PostgresSource, maker: AtomMaker) -> None:
        size, until = 0, time.monotonic() + _TAKE_S
        for payload in source.received(_WAIT_S):
            if payload.data:
                size += self._take_message(payload.data, maker)
                if len(self._made) >= _BATCH or size >= _BATCH_BYTES:
                    break
            elif maker.is_between:
                # Nothing of the publication is before this position that has not come.
                self._sent = max(self._sent, payload.end_lsn)
            if time.monotonic() >= until:
                break  # one write is for many atoms, and none of them waits for long

    def _take_message(self, data: bytes, maker: AtomMaker) -> int:
        """Take a message; return the bytes of the atoms that end with it."""
        try:
            message = message_in(data)
        except ValueError as error:
            raise SourceProblem(f"the database has sent {error}") from error
        size = 0
        for made in () if message is None else maker.take(message):
            if isinstance(made, Ended):
                self._sent = made.end_lsn
            else:
                self._made.append(made)
                size += len(made.body)
        return size

    def _append(self) -> None:
        """Append the atoms that are made; behind them, all that the database has sent is durable."""
        if self._made:
            now_us = wall_clock_us()
            entries = [
                Entry(atom_id(self._name, made.position), made.body, b"", now_us)
                for made in self._made
            ]
            places = self._log.append(entries, limited=False)
            for made, place in zip(self._made, places, strict=True):
                self._backlog.append((place, len(made.body)))
                self._behind += len(made.body)
            last, former = self._made[-1], self._report
            self._report = replace(
                former,
                rows=former.rows + sum(made.rows for made in self._made),
                atoms=former.atoms + len(self._made),
                unfit=former.unfit + sum(made.unfit for made in self._made),
                source_lsn=lsn_text(last.position.source_lsn),
                lag_s=max(0.0, (now_us - last.time_us) / 1e6),
            )
            self._made = []
        elif self._report.lag_s:
            self._report = replace(self._report, lag_s=0.0)
        self._durable = self._sent

    def _is_behind(self) -> bool:
        """Say whether the driver has too much of this stream to process."""
        if self._behind <= BACKLOG_BYTES:
            return False
        reached = self._reached()
        while self._backlog and self._backlog[0][0] < reached:
            self._behind -= self._backlog.popleft()[1]
        return self._behind > BACKLOG_BYTES

    def _reached(self) -> Lsn:
        """Return the position in the log up to which epochs are committed."""
        last = self._journal.last()
        return Lsn(0) if last is None else last.positions.get(ONLY_PARTITION, Lsn(0))

    def _confirm(self, source: PostgresSource) -> None:
        """Tell the database the durable position, at most each second."""
        now = time.monotonic()
        is_new = self._durable > self._confirmed and now - self._confirmed_at >= _CONFIRM_S
        if is_new:
            assert self._note is not None, "it was read by `_begin`"
            # Before the database forgets, the note says that it was for this directory.
            self._note = replace(self._note, confirmed=self._durable)
            write_slot_note(self._data, self._name, self._note)
            self._confirmed, self._confirmed_at = self._durable, now
        source.confirm(self._confirmed, wall_clock_us(), is_new=is_new)

    # The beginning.

    def _begin(self) -> None:
        """Connect, check everything, find the position, and read the tables before the first."""
        settings = self._config.capture_settings(self._name)
        address = settings.address()
        if not address:
            raise SourceRefused(
                "the database has no address", f"give the setting captures.{self._name}.url"
            )
        if self._source is None:
            self._source = PostgresSource(address, self._stop.is_set)
        source = self._source
        source.check_server()
        forms, complaints = source.forms(self._stream.tables, self._publication)
        if complaints:
            raise SourceRefused("; and ".join(complaints))
        untaken = tuple(f"{form.table}.{column}" for form in forms for column in form.untaken)
        self._report = replace(self._report, untaken=untaken, slot=self._slot)
        server, slot = source.server(), source.slot(self._slot)
        note = read_slot_note(self._data, self._name)
        position = self._position()
        if note is not None and note.ordered > self._report.ordered:
            self._report = replace(self._report, ordered=note.ordered)
        generation = 0 if position is None else position.generation
        is_ordered = self._orders.rebuild > (0 if note is None else note.ordered)
        if position is None or not self._is_read(position) or is_ordered:
            self._make_free(source, slot, note)
            wanted = SlotNote(
                server.system,
                self._slot,
                generation + 1,
                0,
                tuple(self._stream.tables),
                self._orders.rebuild,
                server.timeline,
            )
            self._read(source, forms, wanted)
            return
        self._go_on(source, forms, position, note, slot, server)

    @staticmethod
    def _is_read(position: SourcePosition) -> bool:
        """Say whether the tables were read to their end."""
        return position.source_lsn > 0

    def _position(self) -> SourcePosition | None:
        """Return the position of the stream, when all that the log has of it is processed.

        The log forgets ids after a time, and the state does not. So the state decides, and no second capture can have
        appended something that is not known here.
        """
        end = self._log.end()
        while self._reached() < end:
            self._tell(
                CaptureState.WAITING, "the driver has not processed the changes that are in the log"
            )
            if self._stop.wait(_WAIT_S):
                raise Stopped
        (row,) = newest_rows(self._config, [capture_key(self._name)])
        return capture_position_of(row)

    def _make_free(
        self, source: PostgresSource, slot: SlotState | None, note: SlotNote | None
    ) -> None:
        """Drop the slot of a former reading; refuse to drop one that this directory has not made."""
        if slot is None:
            return
        if note is None or note.slot != self._slot or not slot.is_ours:
            raise SourceRefused(
                f"the database has a slot {self._slot} that this directory has not made",
                f"if it is not needed, SELECT pg_drop_replication_slot('{self._slot}'); else give another name by the "
                f"setting captures.{self._name}.slot",
            )
        source.drop_slot(self._slot)

    def _read(self, source: PostgresSource, forms: Sequence[TableForm], note: SlotNote) -> None:
        """Read the whole tables at the position of a new slot."""
        write_slot_note(self._data, self._name, note)  # from here on, the slot is ours
        self._note = note
        self._tell(
            CaptureState.READING, "the slot is made when all transactions that run have ended"
        )
        lsn, snapshot = source.create_slot(self._slot)
        _log.info("capture.reads", extra={"capture": self._name, "generation": note.generation})
        begun = SourcePosition(note.generation, 0, 0, is_whole=False)
        maker = self._maker_at(source, forms, begun)
        now_us = wall_clock_us()
        rows = 0
        self._made.append(maker.mark("reset", begun, now_us))
        for form in forms:
            for made in maker.snapshot(form, source.rows(form, snapshot), now_us):
                self._made.append(made)
                rows += made.rows
                self._append()
                self._tell(CaptureState.READING, f"{rows:,} rows")
                while self._is_behind() and not self._stop.wait(_WAIT_S):
                    pass
                if self._stop.is_set():
                    raise Stopped
        ready = SourcePosition(note.generation, lsn, 0, is_whole=True)
        self._made.append(maker.mark("ready", ready, now_us))
        self._sent = lsn
        self._append()
        self._report = replace(self._report, ordered=note.ordered)
        self._follow(source, maker, note)

    def _go_on(
        self,
        source: PostgresSource,
        forms: Sequence[TableForm],
        position: SourcePosition,
        note: SlotNote | None,
        slot: SlotState | None,
        server: ServerState,
    ) -> None:
        """Follow the slot, if it goes on where the stream ends."""
        again = _AGAIN.format(self._name)
        if note is not None and note.system != server.system:
            raise SourceRefused("the address leads to another database server than before", again)
        taken = max(position.source_lsn, 0 if note is None else note.confirmed)
        if shared := self._shared(source, note, server, taken):
            # Behind it, the same positions stand for other changes.
            raise SourceRefused(
                f"the database has lost changes that this directory has: they go up to {lsn_text(taken)}, and its history up to "
                f"{lsn_text(shared)}, because a standby was promoted or a backup restored",
                again,
            )
        if slot is None:
            raise SourceRefused(
                f"the database has no slot {self._slot} any more, so changes behind {lsn_text(position.source_lsn)} may be lost",
                again,
            )
        if slot.is_lost:
            raise SourceRefused(
                f"the database has forgotten the changes of slot {self._slot} (max_slot_wal_keep_size)",
                again,
            )
        is_own = note is not None and note.generation == position.generation
        confirmed = note.confirmed if note is not None and is_own else position.source_lsn
        # A copy of this directory, or another program, has taken changes that are absent here.
        if slot.confirmed > max(confirmed, position.source_lsn):
            raise SourceRefused(
                f"slot {self._slot} has moved to {lsn_text(slot.confirmed)}, and this directory has the changes up to "
                f"{lsn_text(position.source_lsn)}",
                again,
            )
        tables = tuple(self._stream.tables)
        if note is None or not is_own:
            note = SlotNote(
                server.system, self._slot, position.generation, 0, tables, self._report.ordered
            )
        if new := [table for table in tables if table not in note.tables]:
            raise SourceRefused(f"the rows of {', '.join(new)} were not read yet", again)
        note = replace(note, timeline=server.timeline)
        self._follow(source, self._maker_at(source, forms, position), note)

    @staticmethod
    def _shared(
        source: PostgresSource, note: SlotNote | None, server: ServerState, taken: int
    ) -> int:
        """Return where the history of the server has left that of the stream; 0 if it has all that was taken."""
        end = server.reached
        if note is not None and note.timeline not in (0, server.timeline):
            end = min(end, source.end_of_timeline(note.timeline, server.timeline))
        return max(1, end) if end < taken else 0

    def _follow(self, source: PostgresSource, maker: AtomMaker, note: SlotNote) -> None:
        self._note = replace(note, tables=tuple(self._stream.tables))
        write_slot_note(self._data, self._name, self._note)
        source.follow(self._slot, self._publication)
        self._sent = self._durable = self._confirmed = note.confirmed
        self._maker = maker
        _log.info(
            "capture.follows",
            extra={"capture": self._name, "position": lsn_text(maker.position.source_lsn)},
        )

    def _maker_at(
        self, source: PostgresSource, forms: Iterable[TableForm], position: SourcePosition
    ) -> AtomMaker:
        def reform(form: TableForm, relation: Relation) -> TableForm:
            return self._reformed(source, form, relation)

        known = {form.table: form for form in forms}
        largest = self._config.record_bytes_max
        return AtomMaker(self._stream, known, position, reform, largest)

    def _reformed(self, source: PostgresSource, form: TableForm, relation: Relation) -> TableForm:
        """Return the form of a table whose columns have changed."""
        types = source.types(column.type_oid for column in relation.columns)
        known = {column.name: column for column in form.columns}
        columns = [
            SourceColumn(
                column.name,
                column.type_oid,
                *types.get(column.type_oid, (column.type_oid, "a type that is gone", "")),
                # The message does not tell of NULL; one that does not fit makes its row unfit.
                is_null=False,
                is_long=column.name in known and known[column.name].is_long,
            )
            for column in relation.columns
        ]
        record = self._stream.tables[form.table]
        made = source.form(form.table, record, columns, form.key)
        lost = [name for name in form.key if name not in {column.name for column in columns}]
        complaints = [*made.complaints]
        if lost:
            complaints.append(f"{form.table} has lost {', '.join(lost)} of its primary key")
        if complaints:
            raise SourceRefused("; and ".join(complaints))
        self._report = replace(
            self._report,
            untaken=tuple(f"{made.table}.{column}" for column in made.untaken),
        )
        return made

    # Trouble, and the report.

    def _wait_after(self, error: Exception) -> None:
        remedy = error.remedy if isinstance(error, SourceProblem) else ""
        reason = error.reason if isinstance(error, SourceProblem) else str(error)
        reason = reason or type(error).__name__
        if reason != self._warned:  # a database may be down for days: each reason is told once
            self._warned = reason
            told = {"capture": self._name, "reason": reason, "remedy": remedy}
            _log.warning("capture.waits", extra={key: text for key, text in told.items() if text})
        self._close()
        is_refused = isinstance(error, SourceRefused)
        self._tell(CaptureState.REFUSED if is_refused else CaptureState.WAITING, reason, remedy)
        until = time.monotonic() + min(_PAUSE_S * 2**self._failures, _PAUSE_MAX_S)
        self._failures = min(self._failures + 1, 10)
        # An order or a deployment that mends it is not kept waiting.
        while time.monotonic() < until and not self._stop.wait(_IDLE_S):
            orders = read_orders(self._data, self._name, CAPTURES)
            if orders != self._orders:
                break

    def _close(self) -> None:
        """Close the connections; atoms that were made and not appended come again."""
        source, self._source, self._maker, self._made = self._source, None, None, []
        if source is not None:
            source.close()

    def _look_at_lag(self, source: PostgresSource) -> None:
        now = time.monotonic()
        if now - self._lag_at < _LAG_S:
            return
        self._lag_at = now
        newest, retained = source.lag(self._slot)
        self._report = replace(
            self._report, lag_bytes=max(0, newest - self._durable), retained_bytes=retained
        )

    def _tell(
        self, state: CaptureState, reason: str = "", remedy: str = "", *, is_due: bool = False
    ) -> None:
        """Write the report if the state has changed; the numbers alone from time to time."""
        now = time.monotonic()
        former = self._report
        is_same = (state, reason, remedy) == (former.state, former.reason, former.remedy)
        is_progress = state is CaptureState.READING and former.state is state
        if (is_same or is_progress) and now - self._reported_at < _REPORT_S and not is_due:
            return
        self._reported_at = now
        self._report = replace(
            former,
            source=self._stream.source.kind,
            state=state,
            reason=reason,
            remedy=remedy,
            time_us=wall_clock_us(),
        )
        write_capture_report(self._data, self._report)


def _slot_name(app: str, name: str) -> str:
    """Return the name of a slot: small letters, digits and `_`, at most 63."""
    text = f"penstock_{app}_{name}".lower()
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in text)[
        :_NAME_MAX
    ]


def serve_capture(app: App, name: str, config: Config, *, supervised: bool = False) -> None:
    """Take the changes of one stream until the process is asked to stop, or a deployment has the stream no more.

    Args:
        name: The name of the stream, which the application has.
        supervised: Whether the end of standard input stops the process, too.
    """
    directory = DataDirectory(config.data)
    directory.create(config.key_service)
    folder_of(config.data, name).mkdir(parents=True, exist_ok=True)
    os.nice(_NICE)
    gc.freeze()
    with (
        Stop(supervised=supervised) as stop,
        closing(directory.open_journal(app)) as journal,
        closing(directory.open_log(config)) as log,
        presence.present(config.data, ROLE, config.app, capture=name),
    ):
        code = CodeInForce(config.data, config.app, known=journal.known)
        Capture(app, config, name, journal, log, code).run(stop.wanted)
