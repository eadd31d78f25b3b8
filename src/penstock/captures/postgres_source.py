"""`PostgresSource`: a PostgreSQL database as the source of changes, by logical replication.

It speaks the replication protocol over libpq (`psycopg.pq`), because psycopg has no client for it. Every wait is bounded and
looks for a stop, so a silent server delays no stop. The database is never altered: a complaint has the statement that
an operator may give. Only the replication slot is made and dropped here.

No message has an address or a value of a row.
"""

import re
import select
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Identifier, Literal

from penstock.captures.pgoutput import EPOCH_US, Values
from penstock.captures.table_form import SourceColumn, TableForm

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

OLDEST: Final = 14
"""The oldest server that is supported by its makers, and that the tests know."""

_WITH_LISTS: Final = 150_000
"""The first version whose publications can leave out columns and rows."""

SILENCE_S: Final = 60.0
"""A server that has said nothing for so long, also not to a question, is taken for gone."""

_ASK_S: Final = 10.0
"""How often the server is told where the capture stands, and asked for an answer if it is silent."""

_LOOK_S: Final = 0.2
_OPTIONS: Final = "-c datestyle=ISO -c timezone=UTC -c bytea_output=hex -c extra_float_digits=1 -c row_security=off"
_CONNECT: Final[Mapping[str, str]] = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "application_name": "penstock",
}
_HEAD: Final = struct.Struct("!cqqq")
_KEEPALIVE: Final = struct.Struct("!cqqB")
_STATUS: Final = struct.Struct("!cqqqqB")
_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPED: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


class SourceProblem(Exception):
    """The database cannot be read now.

    Attributes:
        reason: The trouble, in a sentence without secrets.
        remedy: The next step of the operator; empty if waiting helps.
    """

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(f"{reason}; {remedy}" if remedy else reason)
        self.reason = reason
        self.remedy = remedy


class SourceRefused(SourceProblem):
    """The changes cannot be taken as they are declared; trying again does not help."""


class Stopped(Exception):
    """The process is asked to stop while it waits for the database."""


class SlotState(NamedTuple):
    """A replication slot.

    Attributes:
        confirmed: The position up to which the database may forget its log.
        is_lost: Whether the database has forgotten changes that the slot needs.
        is_ours: Whether it is a slot of pgoutput in this database.
    """

    confirmed: int
    is_lost: bool
    is_ours: bool


class ServerState(NamedTuple):
    """A database server.

    Attributes:
        system: Its identity, which a copy of its files has, too.
        timeline: The number of its history, which a promotion or a restored backup changes.
        reached: The position that its log has reached.
    """

    system: str
    timeline: int
    reached: int


class Payload(NamedTuple):
    """A piece of the stream of changes: a message, or without one a mark that everything before `end_lsn` was sent."""

    data: bytes
    end_lsn: int


class PostgresSource:
    """A database; for one thread.

    Args:
        url: Its address.
        stops: Says whether the process is asked to stop.

    Raises:
        SourceProblem: The database does not answer.
        SourceRefused: The address is wrong.
    """

    def __init__(self, url: str, stops: Callable[[], bool]) -> None:
        self._stops = stops
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error:
            raise SourceRefused(
                "the address of the database is no address of PostgreSQL",
                "write postgresql://USER@HOST/DATABASE",
            ) from None
        options = f"{given.get('options') or ''} {_OPTIONS}".strip()
        self._address: dict[str, Any] = {**_CONNECT, **given, "options": options}
        self._link: Connection | None = None
        self._catalog = self._connected()
        self._heard_at = self._told_at = time.monotonic()
        self.version = self._catalog.info.server_version

    def close(self) -> None:
        """Close the connections; the database goes on without them at once."""
        for connection in (self._link, self._catalog):
            if connection is not None:
                with suppress(psycopg.Error):
                    connection.close()

    def _connected(self, **more: str) -> Connection:
        try:
            return psycopg.connect(autocommit=True, **{**self._address, **more})
        except psycopg.Error as error:
            raise _problem(error) from error

    # Questions.

    def server(self) -> ServerState:
        """Return which server it is."""
        result = self._done(self._replication(), "IDENTIFY_SYSTEM")
        system, timeline, reached = (result.get_value(0, column) or b"" for column in range(3))
        return ServerState(system.decode(), int(timeline), _lsn(reached))

    def end_of_timeline(self, former: int, timeline: int) -> int:
        """Return the position at which a timeline has left a former one; 0 if it does not come from it."""
        if timeline < 2:
            return 0  # the first one has no history
        result = self._done(self._replication(), f"TIMELINE_HISTORY {timeline}")
        lines = (line.split() for line in (result.get_value(0, 1) or b"").splitlines())
        ends = {words[0]: words[1] for words in lines if len(words) > 1 and words[0].isdigit()}
        end = ends.get(str(former).encode())
        return 0 if end is None else _lsn(end)

    def check_server(self) -> None:
        """Refuse a server that cannot give changes to this user."""
        if self.version < OLDEST * 10_000:
            raise SourceRefused(
                f"the server is PostgreSQL {self.version // 10_000}", f"use {OLDEST} or newer"
            )
        (row,) = self._ask(
            "SELECT current_setting('wal_level'), pg_is_in_recovery(), current_user::text, "
            "(SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user)"
        )
        level, is_standby, user, may = row
        if level != "logical":
            raise SourceRefused(
                f"the setting wal_level of the server is {level}",
                "ALTER SYSTEM SET wal_level = logical, and restart the server",
            )
        if is_standby == "t":
            raise SourceRefused("the server is a standby", "give the address of its primary")
        if may != "t":
            raise SourceRefused(
                f"the user {user} has no right to replicate", f"ALTER ROLE {user} REPLICATION"
            )

    def forms(
        self, tables: Mapping[str, type], publication: str
    ) -> tuple[list[TableForm], list[str]]:
        """Return how each table becomes its record, and all reasons why that cannot be, each with its remedy."""
        forms: list[TableForm] = []
        complaints = [*self._publication_complaints(tables, publication)]
        for table, record in tables.items():
            schema, _, name = table.partition(".")
            entries = self._ask(
                "SELECT c.oid::text, c.relkind::text, c.relreplident::text, has_table_privilege(c.oid, 'SELECT'), current_user::text "
                "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                f"WHERE n.nspname = {self._text(schema)} AND c.relname = {self._text(name)}"
            )
            if not entries or entries[0][1] not in ("r", "p"):
                complaints.append(
                    f"the database has no table {table}; correct the name in changes(…)"
                )
                continue
            oid, _, identity, may, user = entries[0]
            assert oid is not None, "it is the key of the catalog"
            if may != "t":
                complaints.append(f"{user} may not read {table}; GRANT SELECT ON {table} TO {user}")
            key = [row[0] or "" for row in self._ask(_KEY.format(oid=oid))]
            if not key:
                complaints.append(
                    f"{table} has no primary key, so its rows cannot be told apart; ALTER TABLE {table} ADD PRIMARY KEY (…)"
                )
                continue
            form = self.form(table, record, self._columns(oid), key)
            forms.append(form)
            complaints += form.complaints
            complaints += _identity_complaints(form, identity or "")
        return forms, complaints

    def form(
        self, table: str, record: type, columns: Sequence[SourceColumn], key: Sequence[str]
    ) -> TableForm:
        """Return how a table becomes its record."""
        return TableForm(table, record, columns, key, self._catalog)

    def _columns(self, oid: str) -> list[SourceColumn]:
        return [
            SourceColumn(
                name or "",
                int(own or 0),
                int(base or 0),
                shown or "",
                category or "",
                null == "t",
                long == "t",
            )
            for name, own, base, shown, category, null, long in self._ask(_COLUMNS.format(oid=oid))
        ]

    def types(self, oids: Iterable[int]) -> dict[int, tuple[int, str, str]]:
        """Return the type below each domain, its name and its category."""
        numbers = ", ".join(map(str, oids))
        rows = self._ask(
            f"SELECT t.oid::text, {_BASE.format(oid='t.oid')}::text, format_type(t.oid, NULL), t.typcategory::text "
            f"FROM pg_type t WHERE t.oid IN ({numbers})"
        )
        return {
            int(oid or 0): (int(base or 0), name or "", category or "")
            for oid, base, name, category in rows
        }

    def _publication_complaints(
        self, tables: Mapping[str, type], publication: str
    ) -> Iterator[str]:
        named = self._name(publication)
        every = ", ".join(tables)
        rows = self._ask(
            "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate FROM pg_publication "
            f"WHERE pubname = {self._text(publication)}"
        )
        if not rows:
            yield f"the database has no publication {publication}; CREATE PUBLICATION {named} FOR TABLE {every}"
            return
        if rows[0][0] != "t":
            yield (
                f"publication {publication} leaves out kinds of changes; ALTER PUBLICATION {named} "
                "SET (publish = 'insert, update, delete, truncate')"
            )
        has_lists = self.version >= _WITH_LISTS
        lists = "attnames::text, rowfilter IS NOT NULL" if has_lists else "NULL, false"
        published = {
            row[0]: row
            for row in self._ask(
                f"SELECT schemaname || '.' || tablename, {lists} FROM pg_publication_tables "
                f"WHERE pubname = {self._text(publication)}"
            )
        }
        for table in tables:
            if table not in published:
                yield (
                    f"publication {publication} does not have {table}; ALTER PUBLICATION {named} ADD TABLE {table} (of a "
                    "partitioned table: SET (publish_via_partition_root = true), too)"
                )
            elif published[table][2] == "t":
                yield (
                    f"publication {publication} leaves out rows of {table}, so a row could be gone without a change; remove "
                    "its WHERE"
                )

    def slot(self, name: str) -> SlotState | None:
        """Return a replication slot; None if it is absent."""
        rows = self._ask(
            "SELECT coalesce(confirmed_flush_lsn - '0/0', 0)::text, wal_status = 'lost', "
            "plugin = 'pgoutput' AND database = current_database() "
            f"FROM pg_replication_slots WHERE slot_name = {self._text(name)}"
        )
        if not rows:
            return None
        confirmed, lost, ours = rows[0]
        return SlotState(int(confirmed or 0), lost == "t", ours == "t")

    def lag(self, slot: str) -> tuple[int, int | None]:
        """Return the position at which the server writes its log, and the bytes of it that it keeps for a slot."""
        rows = self._ask(
            "SELECT (pg_current_wal_lsn() - '0/0')::text, (SELECT (pg_current_wal_lsn() - restart_lsn)::text "
            f"FROM pg_replication_slots WHERE slot_name = {self._text(slot)})"
        )
        newest, kept = rows[0]
        return int(newest or 0), None if kept is None else int(kept)

    # The slot, and the rows that there are.

    def drop_slot(self, name: str) -> None:
        """Drop a slot that exists."""
        self._ask(f"SELECT pg_drop_replication_slot({self._text(name)})")

    def create_slot(self, name: str) -> tuple[int, str]:
        """Create a slot; return its position, and the name of a snapshot of all rows at it.

        The server waits until all transactions that run have ended. The snapshot can be used until `follow`.
        """
        link = self._replication()
        command = f"CREATE_REPLICATION_SLOT {self._name(name)} LOGICAL pgoutput (SNAPSHOT 'export')"
        if self.version < _WITH_LISTS:
            command = f"CREATE_REPLICATION_SLOT {self._name(name)} LOGICAL pgoutput EXPORT_SNAPSHOT"
        result = self._done(link, command, deadline_s=None)
        lsn, snapshot = result.get_value(0, 1), result.get_value(0, 2)
        return _lsn(lsn or b""), (snapshot or b"").decode()

    def rows(self, form: TableForm, snapshot: str) -> Iterator[Values]:
        """Yield the rows of a table as a snapshot has them, in the order of the form's columns."""
        connection = self._connected()
        try:
            self._done(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self._done(connection, f"SET TRANSACTION SNAPSHOT {self._text(snapshot)}")
            schema, _, name = form.table.partition(".")
            columns = SQL(", ").join(Identifier(column.name) for column in form.columns)
            query = SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(
                columns, Identifier(schema, name)
            )
            self._done(connection, query.as_string(connection), pq.ExecStatus.COPY_OUT)
            while (line := self._piece(connection, SILENCE_S)) is not None:
                yield [_copied(cell) for cell in line.removesuffix(b"\n").split(b"\t")]
        finally:
            connection.close()

    # The stream.

    def follow(self, slot: str, publication: str) -> None:
        """Begin to receive the transactions behind the position of a slot, in the order of their commits."""
        link = self._replication()
        names = self._text(f'"{publication.replace(chr(34), chr(34) * 2)}"')
        self._done(
            link,
            f"START_REPLICATION SLOT {self._name(slot)} LOGICAL 0/0 (proto_version '1', publication_names {names})",
            pq.ExecStatus.COPY_BOTH,
        )
        self._heard_at = self._told_at = time.monotonic()

    def received(self, wait_s: float) -> Iterator[Payload]:
        """Yield the pieces that have come, after a wait for them, and those that come meanwhile.

        Raises:
            SourceProblem: The server has ended the stream, or is silent.
        """
        assert self._link is not None, "`follow` has made it"
        connection = self._link.pgconn
        is_silent = False
        while True:
            try:
                size, data = connection.get_copy_data(1)
                if size == 0:
                    if is_silent:
                        return
                    is_silent = not _has_come(connection, wait_s)
                    connection.consume_input()
                    wait_s = 0.0
                    continue
                if size < 0:
                    raise _ended(connection)
            except psycopg.Error as error:
                raise _problem(error) from error
            is_silent, wait_s = False, 0.0
            self._heard_at = time.monotonic()
            yield from self._payload(bytes(data))

    def _payload(self, piece: bytes) -> Iterator[Payload]:
        if piece[:1] == b"w":
            yield Payload(piece[_HEAD.size :], _HEAD.unpack_from(piece)[2])
        elif piece[:1] == b"k":
            _, end_lsn, _, asks = _KEEPALIVE.unpack_from(piece)
            if asks:
                self._told_at = float("-inf")
            yield Payload(b"", end_lsn)

    def confirm(self, lsn: int, now_us: int, *, is_new: bool) -> None:
        """Tell the server up to where its log is not needed any more, if that has changed, or from time to time.

        Args:
            now_us: The time, in microseconds since the Unix epoch.
            is_new: Whether it has changed.
        """
        now = time.monotonic()
        if not is_new and now - self._told_at < _ASK_S:
            return
        if now - self._heard_at > SILENCE_S:
            raise SourceProblem(f"the server has said nothing for {SILENCE_S:g} s")
        assert self._link is not None, "`follow` has made it"
        connection = self._link.pgconn
        asks = now - self._heard_at >= _ASK_S
        try:
            connection.put_copy_data(_STATUS.pack(b"r", lsn, lsn, lsn, now_us - EPOCH_US, asks))
            connection.flush()
        except psycopg.Error as error:
            raise _problem(error) from error
        self._told_at = now

    # The protocol.

    def _replication(self) -> Connection:
        if self._link is None:
            self._link = self._connected(replication="database")
        return self._link

    def _ask(self, query: str) -> list[list[str | None]]:
        result = self._done(self._catalog, query)
        return [
            [
                None if (value := result.get_value(row, column)) is None else value.decode()
                for column in range(result.nfields)
            ]
            for row in range(result.ntuples)
        ]

    def _done(
        self,
        connection: Connection,
        command: str,
        expected: pq.ExecStatus | None = None,
        deadline_s: float | None = SILENCE_S,
    ) -> Any:
        """Carry out a command, and return its result.

        Args:
            expected: The status of the stream that it begins; None for a result.
            deadline_s: The time for the answer; None: as long as it takes.
        """
        pgconn = connection.pgconn
        began = time.monotonic()
        try:
            pgconn.send_query(command.encode())
            while pgconn.is_busy():
                self._wait(pgconn, began, deadline_s)
            result = pgconn.get_result()
            assert result is not None, "a command has a result"
            if result.status in (expected, pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
                if result.status != expected:
                    while pgconn.get_result() is not None:
                        pass
                return result
            state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
            primary = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message
            while pgconn.get_result() is not None:
                pass
        except psycopg.Error as error:
            raise _problem(error) from error
        text = _line(primary.decode(errors="replace"))
        raise SourceProblem(f"the database says: {text}", _REMEDIES.get(state, ""))

    def _piece(self, connection: Connection, silence_s: float) -> bytes | None:
        """Return the next line of a COPY; None at its end."""
        pgconn = connection.pgconn
        began = time.monotonic()
        try:
            while True:
                size, data = pgconn.get_copy_data(1)
                if size > 0:
                    return bytes(data)
                if size < 0:
                    result = pgconn.get_result()
                    if result is not None and result.status != pq.ExecStatus.COMMAND_OK:
                        raise SourceProblem(_line(result.error_message.decode(errors="replace")))
                    return None
                self._wait(pgconn, began, silence_s)
        except psycopg.Error as error:
            raise _problem(error) from error

    def _wait(self, pgconn: Any, began: float, deadline_s: float | None) -> None:
        if self._stops():
            raise Stopped
        if deadline_s is not None and time.monotonic() - began > deadline_s:
            raise SourceProblem(f"the server has not answered for {deadline_s:g} s")
        _has_come(pgconn, _LOOK_S)
        pgconn.consume_input()

    def _text(self, text: str) -> str:
        return Literal(text).as_string(self._catalog)

    def _name(self, name: str) -> str:
        return Identifier(name).as_string(self._catalog)


def lsn_text(lsn: int) -> str:
    """Return a position as PostgreSQL writes it: `0/16B3748`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def _lsn(text: bytes) -> int:
    high, _, low = text.partition(b"/")
    return (int(high, 16) << 32) + int(low, 16)


def _identity_complaints(form: TableForm, identity: str) -> Iterator[str]:
    table = form.table
    full = f"ALTER TABLE {table} REPLICA IDENTITY FULL"
    if identity == "n":
        yield f"{table} has no replica identity, so updates and deletes of it fail once it is published; {full}"
    elif identity == "i":
        yield f"the replica identity of {table} is an index that may lack its primary key; {full}, or REPLICA IDENTITY DEFAULT"
    elif identity == "d" and form.long:
        yield (
            f"{table} can hold long values in {', '.join(form.long)}, which an update that does not touch them does not send; "
            f"{full}"
        )


def _copied(cell: bytes) -> bytes | None:
    """Return the value of a cell of COPY."""
    if cell == rb"\N":
        return None
    if b"\\" not in cell:
        return cell
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), cell)


def _has_come(pgconn: Any, wait_s: float) -> bool:
    """Wait for data of the server."""
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN)
    return bool(poll.poll(wait_s * 1_000))


def _problem(error: psycopg.Error) -> SourceProblem:
    """Return the problem behind an error of libpq, whose text has no password."""
    return SourceProblem(
        _line(str(error)) or type(error).__name__, _REMEDIES.get(error.sqlstate or "", "")
    )


def _ended(pgconn: Any) -> SourceProblem:
    """Return why the server has ended a stream."""
    result = pgconn.get_result()
    why = b"" if result is None else result.error_message
    return SourceProblem(_line(why.decode(errors="replace")) or "the server has ended the stream")


def _line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:300] if lines else ""


_REMEDIES: Final = {
    "53400": "raise max_replication_slots, and restart the server",
    "53300": "raise max_wal_senders or max_connections, and restart the server",
    "55000": "",
}
_BASE: Final = (
    "(WITH RECURSIVE below(oid, next) AS (SELECT b.oid, b.typbasetype FROM pg_type b WHERE b.oid = {oid} UNION ALL "
    "SELECT b.oid, b.typbasetype FROM pg_type b JOIN below ON b.oid = below.next) SELECT oid FROM below WHERE next = 0)"
)
_COLUMNS: Final = (
    "SELECT a.attname::text, a.atttypid::text, "
    + _BASE.format(oid="a.atttypid")
    + "::text, format_type(a.atttypid, a.atttypmod), t.typcategory::text, NOT a.attnotnull AND NOT t.typnotnull, "
    "a.attstorage <> 'p' FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
    "WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum"
)
_KEY: Final = (
    "SELECT a.attname::text FROM pg_index i CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k(number, place) "
    "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
    "WHERE i.indrelid = {oid} AND i.indisprimary ORDER BY k.place"
)
