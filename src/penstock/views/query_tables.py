"""The tables of a view that are written in SQL: asked of the SQL view, kept, and sent as differences.

An answer is a file in the folder of the view, named by the position at which the target shows it. It is there before the
target gets this position, and no other answer can take its name. So after a crash, the difference to the next answer is
taken from the rows that the target really shows, at any position; without the file, all tables are filled again. The file
is read in place, and compared in slices, so the memory does not grow with the answer.

In views with personal data the file has no name: it ends with the process.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import xxhash

from penstock.base.ids import Epoch
from penstock.errors import PenstockError, QueryError
from penstock.files import durable
from penstock.model.application import App
from penstock.model.views.view import QueryTable, ViewPlan, columns_of, name_complaints
from penstock.process.config import ViewConfig
from penstock.sql_view.change_batch import ChangeBatch
from penstock.sql_view.table_answers import NamedQuery, TablesBody, read_answers
from penstock.sql_view.table_query import TableQuery, check_table_query
from penstock.sql_view.view_client import socket_of, tables
from penstock.views.pace import ANSWERS
from penstock.views.sql_answer import DEPLOY, SqlAnswer
from penstock.views.target import (
    Position,
    QueryFailed,
    Refused,
    TableChange,
    TableShape,
    TargetProblem,
)

CHANGED_MAX: Final = 100_000
"""The most rows of a difference; with more, all tables are filled again, in parts."""

_ENDING: Final = ".tables"
_PATIENCE_S: Final = 10.0
"""How long after its own limit the SQL view may stay silent."""


class Answers(NamedTuple):
    """The answers of all queries of a view, at one epoch.

    Attributes:
        epoch: The epoch; that of a file is the epoch of the position which names it.
        tables: Their order is that of the view.
        path: The file, which may not be named yet; None if it needs no name.
    """

    epoch: Epoch
    tables: tuple[SqlAnswer, ...]
    path: Path | None

    @property
    def shapes(self) -> list[TableShape]:
        """The tables."""
        return [each.shape for each in self.tables]


class QueryTables:
    """The SQL tables of one view; for one thread.

    Args:
        folder: The folder of the view.
    """

    def __init__(
        self, app: App, plan: ViewPlan, data: Path, folder: Path, settings: ViewConfig
    ) -> None:
        self._app = app
        self._plan = plan
        self._data = data
        self._folder = folder / ANSWERS
        self._settings = settings
        self._tables = [table for table in plan.tables if isinstance(table, QueryTable)]
        self._shown: tuple[Position, Answers] | None = None

    @cached_property
    def classes(self) -> frozenset[str]:
        """The stored names of the classes and tasks that the queries read.

        Raises:
            Refused: A query cannot be a table of this view.
        """
        classes, complaints = checked_queries(self._app, self._plan)
        if complaints:
            raise Refused(complaints[0], DEPLOY)
        return classes

    def reads(self, batch: ChangeBatch) -> bool:
        """Say whether a batch has changed a class that a query reads; if not, its answer is the same."""
        return not self.classes.isdisjoint(batch.changes)

    def definition(self, base: str, answers: Answers) -> str:
        """Return the fingerprint of all tables.

        Args:
            base: That of the other tables, and of the queries.
        """
        tags = [self._app.readable[name].shape.tag for name in sorted(self.classes)]
        facts = msgspec.json.encode((base, answers.shapes, tags))
        return xxhash.xxh3_128_hexdigest(facts)

    def ask(self, epoch: Epoch) -> Answers:
        """Ask the SQL view for the answers at an epoch, or at a later one.

        Raises:
            QueryFailed: A query cannot be answered.
            TargetProblem: The SQL view does not work on them now.
        """
        assert self.classes is not None  # the queries are checked first
        if (socket := socket_of(self._data)) is None:
            raise TargetProblem(
                "no SQL view runs, which answers its queries",
                "penstock run starts one, and so does penstock view serve",
            )
        queries = [NamedQuery(table.name, table.query) for table in self._tables]
        body = msgspec.json.encode(TablesBody(queries, epoch))
        timeout_s = self._settings.time_ms / 1_000 + _PATIENCE_S
        self._folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=self._folder)
        path = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                answered = tables(socket, body, f"view {self._plan.name}", file, timeout_s)
                file.flush()
                if not self._is_hidden:
                    os.fsync(file.fileno())
            answers = self._opened(path, answered)
            if self._is_hidden:
                path.unlink()
        except QueryError as error:
            path.unlink(missing_ok=True)
            raise QueryFailed(str(error), DEPLOY) from error
        except PenstockError as error:
            path.unlink(missing_ok=True)
            raise TargetProblem(str(error)) from error
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return answers

    @property
    def _is_hidden(self) -> bool:
        """Whether the answers may have personal data, which no file of the data directory may keep."""
        return self._plan.target.personal

    def _opened(self, path: Path, epoch: Epoch) -> Answers:
        with pa.memory_map(str(path)) as file:
            read = list(read_answers(file.read_buffer()))
        made = (
            SqlAnswer(table, rows, types)
            for table, (rows, types) in zip(self._tables, read, strict=True)
        )
        return Answers(epoch, tuple(made), None if self._is_hidden else path)

    def shown(self, position: Position) -> Answers | None:
        """Return the answers that a target with this position shows; None if they are not known."""
        if self._shown is not None and self._shown[0] == position:
            return self._shown[1]
        if self._is_hidden:
            return None
        try:
            answers = self._opened(self._file_of(position), position.epoch)
        except (OSError, ValueError, KeyError, pa.ArrowInvalid, msgspec.MsgspecError, Refused):
            return None  # it is lost, or the query has another form now
        self._shown = position, answers
        return answers

    def _file_of(self, position: Position) -> Path:
        name = xxhash.xxh3_128_hexdigest(msgspec.msgpack.encode(position))
        return self._folder / f"{name}{_ENDING}"

    def name(self, answers: Answers, position: Position) -> Answers:
        """Name answers by the position at which the target will show them; return those that have this name."""
        if answers.path is None:
            return answers
        target = self._file_of(position)
        if answers.path == target:
            return answers
        is_new = answers.path.suffix != _ENDING
        try:
            os.link(answers.path, target)
            answers = answers._replace(path=target)
        except FileExistsError:
            # Another applier has asked at the same epoch, and perhaps written already: its answer counts, because the last
            # digits of a sum may depend on the order of rows.
            answers = self._opened(target, position.epoch)
        if is_new:
            durable.sync_directory(self._folder)
        return answers

    def settle(self, answers: Answers, position: Position) -> None:
        """Note that the target shows answers at its position; those of others are not needed any more."""
        self._shown = position, answers
        kept = self._file_of(position)
        with suppress(OSError):
            for path in self._folder.iterdir():
                if path != kept:
                    path.unlink()

    def rows(self, answers: Answers) -> Iterator[TableChange]:
        """Yield all rows, in parts."""
        for answer in answers.tables:
            yield from answer.filling()

    def changes(self, former: Answers, present: Answers) -> list[TableChange] | None:
        """Return the changes of the tables from one answer to the next; None if they are too many, or of another form."""
        changes: list[TableChange] = []
        count = 0
        for before, after in zip(former.tables, present.tables, strict=True):
            if not after.has_form_of(before):
                return None
            for change in after.changes_since(before):
                count += len(change.touched)
                if count > CHANGED_MAX:
                    return None
                changes.append(change)
        return changes


def checked_queries(app: App, plan: ViewPlan) -> tuple[frozenset[str], list[str]]:
    """Check the queries of a view; return the stored names of the classes that they read, and the complaints."""
    classes: set[str] = set()
    complaints: list[str] = []
    known = {column for table in plan.tables for column in columns_of(table)}
    is_complete = True
    for table in plan.tables:
        if isinstance(table, QueryTable):
            query, wrong = _checked(app, plan, table)
            complaints += [f"table {table.name}: {complaint}" for complaint in wrong]
            if query is None:
                is_complete = False
                continue
            classes |= query.classes
            known.update(query.columns)
    if is_complete:
        complaints += [
            f"search() names the column {name}, which no table of it has"
            for name in dict.fromkeys((*plan.target.text, *plan.target.facets))
            if name not in known
        ]
    return frozenset(classes), complaints


def _checked(app: App, plan: ViewPlan, table: QueryTable) -> tuple[TableQuery | None, list[str]]:
    """Check the query of a table; return its facts, and why it cannot be a table of the view."""
    try:
        query = check_table_query(app, table.query)
    except QueryError as error:
        return None, [str(error)]
    columns = query.columns
    complaints = list(name_complaints(plan.target, table.name, columns))
    twice = sorted({name for name in columns if columns.count(name) > 1})
    complaints += [f"two columns have the name {name}; give them names with AS" for name in twice]
    complaints += [
        f"the key {name} is not among its columns: {', '.join(columns)}"
        for name in table.key
        if name not in columns
    ]
    persons = sorted(name for name in query.classes if app.readable[name].personal)
    if persons and not plan.target.personal:
        complaints.append(
            f"it reads {', '.join(persons)}, which is personal, and a view copies its data out of the encrypted files; allow it "
            f"with {plan.target.kind}(personal=True)"
        )
    return query, complaints
