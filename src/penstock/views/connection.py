"""Connections to a DuckDB that keeps to itself: no file, network, extension or variable of Python.

Promises that after `close_off` nothing outside can be reached and no setting changed. Before it, the
one who has opened the connection may attach what it shall hold.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from penstock.state.column import quoted


def isolated(memory_mb: int, threads: int) -> duckdb.DuckDBPyConnection:
    """Open a database in memory; what wants more memory fails, because nothing spills."""
    return duckdb.connect(
        ":memory:",
        config={
            "threads": threads,
            "memory_limit": f"{memory_mb}MiB",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "python_enable_replacements": "false",
            "temp_directory": "",
        },
    )


def close_off(connection: duckdb.DuckDBPyConnection) -> None:
    """Close it to the outside, for ever."""
    for setting in (
        "GLOBAL TimeZone = 'UTC'",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        connection.execute(f"SET {setting}")


@contextmanager
def given(connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> Iterator[str]:
    """Let SQL read an Arrow table, under the name that is given."""
    name = "given rows"  # no class can have it
    connection.register(name, rows)
    try:
        yield quoted(name)
    finally:
        connection.unregister(name)
