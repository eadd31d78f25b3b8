"""Connections to a DuckDB that keeps to itself: no file, network, extension or variable of Python.

Promises that a database has no thread but those that call it, so that a process which has one can be
forked; that after `close_to_outside` nothing outside can be reached, and after `fix_settings` no setting can be changed.
Before `close_to_outside`, files may be attached.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import duckdb
import pyarrow as pa

from penstock.snapshots.column import quoted


def open_isolated(memory_mb: int) -> duckdb.DuckDBPyConnection:
    """Open a database in memory; what wants more memory fails, because nothing spills.

    A file that it attaches is written to, but for its log, only by CHECKPOINT and in free blocks.
    """
    return duckdb.connect(
        ":memory:",
        config={
            "threads": 1,
            "async_threads": 0,
            "wal_autocheckpoint": "1TiB",
            "auto_checkpoint_skip_wal_threshold": 1 << 60,
            "memory_limit": f"{memory_mb}MiB",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "python_enable_replacements": "false",
            "temp_directory": "",
        },
    )


def close_to_outside(connection: duckdb.DuckDBPyConnection) -> None:
    """Close it to the outside, for ever."""
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET enable_external_access = false")


def fix_settings(connection: duckdb.DuckDBPyConnection, threads: int = 1) -> None:
    """Change no setting any more; so many threads run its queries."""
    if threads > 1:
        connection.execute(f"SET threads = {threads}")
    connection.execute("SET lock_configuration = true")


@contextmanager
def registered(connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> Iterator[str]:
    """Let SQL read an Arrow table, under the name that is given."""
    name = "given rows"  # no class can have it
    connection.register(name, rows)
    try:
        yield quoted(name)
    finally:
        with suppress(duckdb.Error):  # of a transaction that is aborted; why, is on its way up
            connection.unregister(name)
