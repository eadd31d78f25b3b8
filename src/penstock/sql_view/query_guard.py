"""The query guard: which statements a view executes.

A query is one SELECT (or WITH, VALUES, FROM, SHOW, DESCRIBE, SUMMARIZE, or EXPLAIN of one) that reads
only the view's tables. Three independent barriers ensure this: this check of the parsed statement, a
read-only transaction, and a database without access to files, network, extensions and settings. Table
functions are allowed by name; functions that act, that read beyond tables, or that take memory
addresses are refused by name.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

import duckdb
import msgspec

from penstock.errors import QueryError
from penstock.snapshots.column import alike, quoted
from penstock.snapshots.table import MAIN, TASKS, written_name
from penstock.sql_view.error_place import GivenText, syntax_error_place
from penstock.sql_view.system_tables import STREAMS

QUERY_CHARACTERS_MAX: Final = 100_000

TABLE_FUNCTIONS: Final = frozenset(
    {"range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree"}
)
"""The only allowed table functions."""

REFUSED: Final = frozenset(
    {
        *("getenv", "getvariable", "current_setting", "current_query", "current_database"),
        *("currval", "nextval", "setval", "setseed", "sleep_ms", "write_log", "stats"),
        *("json_execute_serialized_sql", "json_serialize_plan", "json_deserialize_sql"),
        *("current_connection_id", "current_query_id", "current_transaction_id", "txid_current"),
        *("read_text", "read_blob", "glob", "query", "query_table", "which_secret", "vector_type"),
        *("index_key", "pg_get_constraintdef", "pg_get_viewdef", "get_block_size"),
    }
)
"""Functions that act, or that return facts about the process instead of data."""

_INTERNALS: Final = ("duckdb_", "pragma_", "sqlite_", "pg_")
_SCHEMAS: Final = frozenset({"", MAIN, TASKS, STREAMS, "penstock", "information_schema"})
_NODES: Final = frozenset(
    {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE", "VALUES_NODE"}
)
_SHOWABLE: Final = frozenset({"", "tables", "__show_tables_expanded"})
_EXPLAIN: Final = re.compile(r"\s*EXPLAIN\s+(?:ANALYZE\s+)?(?=\w|\()", re.IGNORECASE)
_ONE: Final = "a query is one statement, and this text has {count}"
_KINDS: Final = "only SELECT is allowed (and WITH, SHOW, DESCRIBE, SUMMARIZE, EXPLAIN), not {kind}"


class TableName(NamedTuple):
    """A table that a query names, in lower case."""

    schema: str
    name: str


def check_query(
    query: str,
    tables: Collection[str],
    cursor: duckdb.DuckDBPyConnection,
    schemas: Collection[str] = (),
    given: GivenText | None = None,
) -> set[TableName]:
    """Check a query, and return the tables that it names.

    Args:
        tables: The names of the allowed tables, as queries write them.
        cursor: A connection that parses the query without executing it.
        schemas: Additional schemas; the query must read from each of them.
        given: The text in which the places of errors are counted; None is the query itself.
    """
    check_length(query)
    statement_type = _kind_of(query, tables, cursor, given or GivenText(query))
    if statement_type == "EXPLAIN":
        explained = _EXPLAIN.match(query)
        query = query[explained.end() :] if explained else query
        statement_type = _kind_of(query, tables, cursor, None)
    if statement_type != "SELECT":
        raise QueryError(_KINDS.format(kind=statement_type))
    named: set[TableName] = set()
    for node in nodes_of(query, cursor):
        _check_node(node, tables, schemas)
        if node.get("type") == "BASE_TABLE":
            named.add(_table_name(node))
    if not {table.schema for table in named}.issuperset(schemas):
        raise QueryError("AS OF and changes(…) are allowed only in the place of a table")
    return named


def check_length(query: str) -> None:
    """Check the length of a query."""
    if len(query) > QUERY_CHARACTERS_MAX:
        raise QueryError(f"a query has at most {QUERY_CHARACTERS_MAX:,} characters")


def _kind_of(
    query: str,
    tables: Collection[str],
    cursor: duckdb.DuckDBPyConnection,
    given: GivenText | None,
) -> str:
    """Return the kind of a statement; an error names its place in the given text if there is one."""
    try:
        statements = cursor.extract_statements(query)
    except duckdb.Error as error:
        place = syntax_error_place(cursor, query, given) if given else ""
        raise QueryError(
            f"{place}{error_text(error)}{_hint(cursor, str(error), tables)}"
        ) from error
    if len(statements) != 1:
        raise QueryError(_ONE.format(count=len(statements) or "none"))
    return str(statements[0].type.name)


def _tree(query: str, cursor: duckdb.DuckDBPyConnection) -> Any:
    """Return the parsed statement."""
    try:
        [(text,)] = cursor.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()
        tree = msgspec.json.decode(text)
    except (duckdb.Error, msgspec.DecodeError, RecursionError) as error:
        raise QueryError("the query is too complex to be checked; make it smaller") from error
    if tree.get("error"):
        raise QueryError(_KINDS.format(kind="another statement"))
    return tree["statements"]


def nodes_of(query: str, cursor: duckdb.DuckDBPyConnection) -> Iterator[dict[str, Any]]:
    """Yield every object of a parsed statement, however deep."""
    waiting = [_tree(query, cursor)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _check_node(node: dict[str, Any], tables: Collection[str], schemas: Collection[str]) -> None:
    node_type = node.get("type")
    if isinstance(node_type, str) and node_type.endswith("_NODE") and node_type not in _NODES:
        raise QueryError(_KINDS.format(kind=node_type.removesuffix("_NODE").removesuffix("_QUERY")))
    match node_type:
        case "TABLE_FUNCTION":
            name = str(node["function"].get("function_name", "")).casefold()
            if name not in TABLE_FUNCTIONS:
                raise QueryError(f"the table function {name} is not allowed")
        case "BASE_TABLE":
            _check_table(node, tables, schemas)
        case "SHOW_REF":
            name = str(node["table_name"]).strip('"').casefold()
            if node["query"] is None and name not in _SHOWABLE:
                raise QueryError(f"SHOW {name.upper()} is not allowed; use SHOW TABLES")
        case _:
            pass
    function = node.get("function_name")
    if isinstance(function, str) and _refused(function):
        raise QueryError(
            f"the function {function} is not allowed, because it does not compute with data"
        )


def _refused(name: str) -> bool:
    folded = name.casefold()
    return folded in REFUSED or (folded.startswith(_INTERNALS) and folded not in ("pg_typeof",))


def _table_name(node: dict[str, Any]) -> TableName:
    schema, name = node.get("schema_name", ""), node.get("table_name", "")
    return TableName(str(schema).casefold(), str(name).casefold())


def _check_table(node: dict[str, Any], tables: Collection[str], schemas: Collection[str]) -> None:
    schema, name = _table_name(node)
    written = name if schema in ("", MAIN) else written_name(schema, name)
    own = written in {table.casefold() for table in tables}
    if not own:
        refuse_ambiguous(schema, name, tables)
    if (schema not in _SCHEMAS and schema not in schemas) or (
        name.startswith(_INTERNALS) and not own
    ):
        raise QueryError(f"there is no table {'.'.join(filter(None, (schema, name)))} in the view")
    path = node.get("qualified_name", {}).get("path", [])
    if len(path) > 2 or node.get("catalog_name"):
        raise QueryError("the view is a single database; write the table's name without a database")


def refuse_ambiguous(schema: str, name: str, tables: Iterable[str]) -> None:
    """Refuse a name that several tables have if case is ignored."""
    bare = {table: table.rpartition('."')[2].removesuffix('"') for table in tables}
    inside = "" if schema in ("", MAIN) else f"{schema}."
    names = {
        short: table
        for table, short in bare.items()
        if table.startswith(inside) and (inside or "." not in table)
    }
    if several := alike(name, names):
        written = " or ".join(names[each] for each in several)
        raise QueryError(f"the name {name} is ambiguous, because SQL ignores case: write {written}")


def error_text(error: Exception) -> str:
    """Return the message of DuckDB without its error class and without the query's text."""
    text = str(error).split("\n\nLINE ")[0].strip()
    return text.partition(" Error: ")[2] or text


def _hint(cursor: duckdb.DuckDBPyConnection, message: str, tables: Collection[str]) -> str:
    """Return a hint for a table whose name is an SQL keyword, for example Order."""
    for name in tables:
        if f'at or near "{name.casefold()}"' in message.casefold() and _is_keyword(cursor, name):
            return f" ({name} is an SQL keyword; write the table as {quoted(name)})"
    return ""


def _is_keyword(cursor: duckdb.DuckDBPyConnection, name: str) -> bool:
    """Say whether a name cannot be written without quotes."""
    try:
        cursor.extract_statements(f"FROM {name}")
    except duckdb.Error:
        return True
    return False
