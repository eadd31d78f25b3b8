"""The answers of several queries at one epoch, for the tables of a view that are written in SQL.

The body of an answer has one Arrow stream for each query, behind its length. It begins at a multiple of 64 bytes, so that a
file of it can be read in place. The metadata of a stream has the SQL types of the columns.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import msgspec
import pyarrow as pa

from penstock.base.ids import Epoch
from penstock.errors import QueryError
from penstock.sql_view import query_guard
from penstock.sql_view.query import QueryLimits, QueryResult, read, translating_errors
from penstock.sql_view.query_pool import Encoded
from penstock.sql_view.result_format import ResultFormat, encode_result
from penstock.sql_view.view_store import ViewStore

TYPES: Final = b"penstock.types"
"""The key of the SQL types in the metadata of a stream, as a JSON list."""

_BEGIN: Final = struct.Struct("<Q56x")
_ALIGNED: Final = _BEGIN.size


class NamedQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a table, and the name of the table, for messages."""

    name: str
    query: str


class TablesBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /tables`.

    Attributes:
        min_epoch: The oldest epoch that may answer; -1 before the first.
    """

    queries: list[NamedQuery]
    min_epoch: Annotated[int, msgspec.Meta(ge=-1)]


def run_queries(store: ViewStore, queries: Sequence[NamedQuery], limits: QueryLimits) -> Encoded:
    """Execute queries at the newest epoch of the tables, in a child, because only the end of a process ends them.

    Raises:
        ViewDamaged: DuckDB or its file is damaged.
    """
    cursor = store.sealed()
    cursor.execute("BEGIN TRANSACTION READ ONLY")
    [(number,)] = cursor.execute("SELECT epoch FROM penstock.view").fetchall()
    epoch = Epoch(number)
    pieces: list[bytes] = []
    for each in queries:
        try:
            with translating_errors(limits):
                query_guard.check_query(each.query, store.names, cursor)
                result = read(cursor, each.query, [], limits, epoch)
                pieces += _piece(result)
        except QueryError as error:
            raise QueryError(f"table {each.name}: {error}") from error
    return Encoded(epoch, b"".join(pieces))


def _piece(result: QueryResult) -> Iterator[bytes]:
    types = {TYPES: msgspec.json.encode(result.types)}
    table = result.table.replace_schema_metadata(types)
    stream = encode_result(QueryResult(result.epoch, table, result.types), ResultFormat.ARROW)
    yield _BEGIN.pack(len(stream))
    yield stream
    yield bytes(-len(stream) % _ALIGNED)


def read_answers(body: pa.Buffer) -> Iterator[tuple[pa.Table, list[str]]]:
    """Yield the rows of each answer in a body, which stays in use, and the SQL types of the columns.

    Raises:
        ValueError: The body is damaged.
    """
    place = 0
    while place < body.size:
        (size,) = _BEGIN.unpack_from(body, place)
        place += _ALIGNED
        if size > body.size - place:
            raise ValueError("the body of answers ends too early")
        table = pa.ipc.open_stream(body.slice(place, size)).read_all()
        yield table, msgspec.json.decode((table.schema.metadata or {})[TYPES], type=list[str])
        place += size + -size % _ALIGNED
