"""Views: tables of an application that a database, a search index or Kafka shows, fed from the journal.

`view` names a target and tables. A table is an entity class, a stream, a row function, which makes rows of one entity, or a
query (`sql_table`). `App` checks the tables, so that what it accepts can be shown.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from penstock.base.case_twins import case_twins
from penstock.base.record import fields_of, is_record
from penstock.base.schema import entities_in, reference_type
from penstock.model.declaration import caller_place
from penstock.model.entity_type import EntityType
from penstock.model.resolver import Resolver
from penstock.model.streams.event_type import EventType
from penstock.model.streams.row_function import RowFunction, rows_of
from penstock.model.streams.stream import NAME, UNKNOWN, Stream
from penstock.model.target_choice import TargetChoice
from penstock.model.views.sql_table import SqlTable

_HIDDEN: Final = "_"


class View:
    """A name, a target and tables; see `view`.

    Attributes:
        where: `file:line` of the declaration.
    """

    def __init__(
        self, name: str, target: TargetChoice, tables: tuple[Any, ...], where: str
    ) -> None:
        self.name = name
        self.target = target
        self.tables = tables
        self.where = where

    def __repr__(self) -> str:
        return f"<View {self.name}>"


def view(
    name: str,
    target: TargetChoice,
    /,
    *tables: type | Stream[Any] | RowFunction[Any, Any] | SqlTable,
) -> View:
    """Show tables in a database, a search index or topics of Kafka, fed from the journal.

    The view always shows the state at exactly one epoch. It is a member of the `App`.

    Args:
        name: Letters, digits, `-` and `_`. The settings of the target have this name: `views.NAME.url`.
        target: `sqlite()`, `postgres()`, `search()` or `kafka()`.
        tables: Entity classes, streams, functions marked with `rows`, and queries (`sql`).
    """
    return View(name, target, tables, caller_place())


class ClassTable(msgspec.Struct, frozen=True):
    """A table that shows an entity class."""

    name: str
    source: EntityType


class RowTable(msgspec.Struct, frozen=True):
    """A table whose rows a function makes.

    Attributes:
        row_type: The type of its rows, a record.
        is_single: Whether the function returns one row or None, and not several.
    """

    name: str
    source: EntityType
    function: Callable[[Any], Any]
    row_type: EventType[Any]
    is_single: bool


class StreamTable(msgspec.Struct, frozen=True):
    """A table that shows the events of a stream."""

    name: str
    source: Stream[Any]


class QueryTable(msgspec.Struct, frozen=True):
    """A table that shows the answer of a query. Its columns are known when the query was asked.

    Attributes:
        key: The columns whose values name a row.
        every: The shortest time between two questions.
    """

    name: str
    query: str
    key: tuple[str, ...]
    every: timedelta


ShownTable = ClassTable | RowTable | StreamTable | QueryTable


class ViewPlan(msgspec.Struct, frozen=True):
    """A view whose tables are those of one application."""

    name: str
    target: TargetChoice
    tables: tuple[ShownTable, ...]
    where: str


def plans_of(
    views: Iterable[View],
    entities: Mapping[str, EntityType],
    streams: Mapping[str, Stream[Any]],
    resolver: Resolver,
) -> dict[str, ViewPlan]:
    """Return the views of an application by name; mistakes become complaints of the resolver.

    Args:
        entities: The entity classes of the application, by name.
        streams: Its streams, by name.
    """
    classes = {each.cls: each for each in entities.values()}
    planning = _Planning(classes, streams, resolver)
    plans: dict[str, ViewPlan] = {}
    for each in views:
        if not NAME.fullmatch(str(each.name)):
            planning.complain(
                each.where, f"{each.name!r} cannot name a view: letters, digits, - and _ only"
            )
        elif each.name in plans:
            planning.complain(
                each.where, f"the name {each.name} is taken by the view of {plans[each.name].where}"
            )
        else:
            plans[each.name] = planning.plan_of(each)
    return plans


class _Planning:
    """Finds the table of each thing that a view names, and checks it."""

    def __init__(
        self,
        classes: Mapping[type, EntityType],
        streams: Mapping[str, Stream[Any]],
        resolver: Resolver,
    ) -> None:
        self._classes = classes
        self._streams = streams
        self._resolver = resolver

    def complain(self, where: str, what: str) -> None:
        self._resolver.complaints.append(f"{where}: {what}")

    def plan_of(self, view: View) -> ViewPlan:
        tables: list[ShownTable] = []
        target: object = view.target
        if not isinstance(target, TargetChoice):
            self._complain(
                view, f"its target is {target!r}; name sqlite(), postgres(), search() or kafka()"
            )
            return ViewPlan(view.name, TargetChoice("sqlite"), (), view.where)
        if not view.tables:
            self._complain(
                view,
                "it shows nothing; name entity classes, streams, functions with @rows or sql(…)",
            )
        for each in view.tables:
            tables += self._tables_of(view, each)
        for earlier, later in case_twins([table.name for table in tables]):
            self._complain(
                view, f"the tables {earlier} and {later} differ only in case, which SQL ignores"
            )
        names = [table.name for table in tables]
        queries = {table.name for table in tables if isinstance(table, QueryTable)}
        for name in sorted({name for name in names if names.count(name) > 1}):
            hint = "; name one with sql(…, name=…)" if name in queries else ""
            self._complain(view, f"it has two tables with the name {name}{hint}")
        known = {column for table in tables for column in columns_of(table)}
        for name in dict.fromkeys((*target.text, *target.facets)):
            if tables and not queries and name not in known:
                self._complain(view, f"search() names the column {name}, which no table of it has")
        return ViewPlan(view.name, view.target, tuple(tables), view.where)

    def _complain(self, view: View, what: str) -> None:
        self.complain(view.where, f"view {view.name}: {what}")

    def _tables_of(self, view: View, shown: Any) -> Iterator[ShownTable]:
        """Yield the table of one thing; none after a complaint."""
        table: ShownTable | None
        if isinstance(shown, RowFunction):
            table = self._row_table(view, shown)
        elif isinstance(shown, SqlTable):
            table = self._query_table(view, shown)
        elif isinstance(shown, Stream):
            table = self._stream_table(view, shown)
        elif isinstance(shown, type) and reference_type(shown) is not None:
            table = self._class_table(view, shown)
        else:
            table = None
            self._complain(
                view,
                f"{shown!r} cannot be shown; name entity classes, streams, functions with @rows or sql(…)",
            )
        if table is not None and self._has_fitting_names(view, table):
            yield table

    def _query_table(self, view: View, shown: SqlTable) -> QueryTable | None:
        before = len(self._resolver.complaints)
        for complaint in shown.complaints():
            self.complain(shown.where, f"sql(…): {complaint}")
        if len(self._resolver.complaints) > before:
            return None
        return QueryTable(shown.name or view.name, shown.query, shown.key, shown.every)

    def _class_table(self, view: View, shown: type) -> ClassTable | None:
        entity_type = self._entity_type(view, shown)
        return None if entity_type is None else ClassTable(entity_type.name, entity_type)

    def _entity_type(self, view: View, shown: type) -> EntityType | None:
        entity_type = self._classes.get(shown)
        if entity_type is None:
            self._complain(view, f"{shown.__name__} is not part of the application; name it there")
        elif entity_type.personal and not view.target.personal:
            self._complain(
                view,
                f"{shown.__name__} is a personal class, and a view copies its data out of the encrypted files; allow it "
                f"with {view.target.kind}(personal=True)",
            )
        else:
            return entity_type
        return None

    def _stream_table(self, view: View, shown: Stream[Any]) -> StreamTable | None:
        if self._streams.get(shown.name) is not shown.origin:
            self._complain(
                view, f"stream {shown.name} is not part of the application; name it there"
            )
        elif shown.annotation is UNKNOWN:
            self._complain(view, f"nothing declares the type of the events of stream {shown.name}")
        elif self._is_personal(shown.annotation) and not view.target.personal:
            self._complain(
                view,
                f"the events of stream {shown.name} refer to persons, and a view copies them out of the encrypted files; "
                f"allow it with {view.target.kind}(personal=True)",
            )
        else:
            return StreamTable(shown.name, shown)
        return None

    def _is_personal(self, annotation: Any) -> bool:
        return any(
            each in self._classes and self._classes[each].personal
            for each in entities_in(annotation)
        )

    def _row_table(self, view: View, shown: RowFunction[Any, Any]) -> RowTable | None:
        given: Any = shown.source
        if not isinstance(given, type) or reference_type(given) is None:
            self.complain(shown.where, f"@rows({given!r}): name an entity class")
            return None
        source = self._entity_type(view, given)
        made = rows_of(shown, self._resolver)
        if source is None or made is None:
            return None
        row_type, is_single = made
        return RowTable(shown.name, source, shown.function, row_type, is_single)

    def _has_fitting_names(self, view: View, table: ShownTable) -> bool:
        complaints = list(name_complaints(view.target, table.name, columns_of(table)))
        for complaint in complaints:
            self._complain(view, f"{table.name}: {complaint}")
        return not complaints


OWN_COLUMNS: Final = frozenset({"_key", "_place", "_atom", "_epoch", "_time", "_unshown"})
"""The columns that views add to tables."""


def name_complaints(target: TargetChoice, name: str, columns: Sequence[str]) -> Iterator[str]:
    """Yield the reason for each name that a table, or one of its columns, cannot have."""
    yield from target.name_complaints([name, *columns])
    for earlier, later in case_twins(columns):
        yield f"{earlier} and {later} differ only in case, which SQL ignores"
    if name.startswith(_HIDDEN):
        yield "a table whose name begins with _ is one of the view's own; rename it"
    for column in columns:
        if column in OWN_COLUMNS:
            yield f"the column {column} begins with _, as the view's own columns do; rename it"


def columns_of(table: ShownTable) -> list[str]:
    """Return the names of the columns that the application gives to a table; none for a query, which was not asked yet."""
    match table:
        case ClassTable(source=entity_type):
            return [entity_type.key_name, *entity_type.attributes]
        case RowTable(row_type=row_type):
            return [field.member.wire for field in fields_of(row_type.annotation)]
        case StreamTable(source=stream):
            if not is_record(stream.annotation):
                return ["event"]
            return [field.member.wire for field in fields_of(stream.annotation)]
        case QueryTable():
            return []
