"""The names of all tables of an application, as queries write them.

Entities and the system tables need no schema. The rows of tasks are in the schema `tasks`, and the events of
streams in the schema `streams`: `Item`, `tasks."wordcount.Count"`, `streams."lines"`. SQL ignores case, so streams
whose names differ only by case, in older data, are all numbered: `Lines_1`, `lines_2`.
"""

from collections.abc import Iterable
from typing import Final

from penstock.model.application import App
from penstock.snapshots.column import unambiguous
from penstock.snapshots.table import EntityTable, written_name
from penstock.sql.system_tables import SYSTEM_TABLES

STREAMS: Final = "streams"
"""The schema of the tables of streams."""


def names_of(app: App, tables: Iterable[EntityTable]) -> list[str]:
    """Return the names of all tables of an application as queries write them."""
    streams = [written_name(STREAMS, name) for name in stream_names(app).values()]
    return [*(table.query_name for table in tables), *streams, *SYSTEM_TABLES]


def stream_names(app: App) -> dict[str, str]:
    """Return the name of each stream's table in the schema `streams`, by the name of the stream."""
    streams = list(app.topology.streams)
    return dict(zip(streams, unambiguous(streams), strict=True))
