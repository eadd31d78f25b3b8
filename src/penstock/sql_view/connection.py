"""Connections to an isolated DuckDB: no files, network, extensions or Python variables.

A database has no threads but its callers, so that a process with a database can be forked. After
`close_to_outside`, queries reach nothing outside of the database; files must be attached before.
After `fix_settings`, no setting can be changed.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from penstock.errors import ConfigError, StateUnavailable
from penstock.files.lock import Claimed, claim
from penstock.snapshots.column import quoted

BREAKDOWNS: Final = ("INTERNAL Error", "FATAL Error")
_DAMAGES: Final = ("IO Error", "Serialization Error", "Corrupt database file", *BREAKDOWNS)
"""How messages of DuckDB begin after it or its file is damaged; errors that occur while rows are
fetched have no class of their own."""

_SHORT_OF_MEMORY: Final = ("could not allocate block", "failed to pin block", "failed to allocate")
"""Words in the input/output error of a checkpoint that is short of memory."""


class ViewDamaged(Exception):
    """DuckDB or its file is damaged; the view must be reopened or rebuilt."""


def is_damage(error: Exception) -> bool:
    """Return whether an error of DuckDB means damage, and not a wrong query."""
    return str(error).startswith(_DAMAGES)


def is_short_of_memory(error: Exception) -> bool:
    """Return whether DuckDB failed because of its memory limit."""
    return isinstance(error, duckdb.OutOfMemoryException | MemoryError) or any(
        words in str(error) for words in _SHORT_OF_MEMORY
    )


def open_isolated(memory_mb: int) -> duckdb.DuckDBPyConnection:
    """Open a database in memory; a query that needs more memory fails, because nothing spills.

    An attached file is written only by CHECKPOINT, except for its log.
    """
    connection = duckdb.connect(
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
    # In a process that was not started from a file, as a forked one, DuckDB would write its progress to the output.
    connection.execute("SET enable_progress_bar = false")
    return connection


def close_to_outside(connection: duckdb.DuckDBPyConnection) -> None:
    """Refuse access to files and network until the database is closed."""
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET enable_external_access = false")


def fix_settings(connection: duckdb.DuckDBPyConnection, threads: int = 1) -> None:
    """Set the number of threads for queries, and refuse all later changes of settings."""
    if threads > 1:
        connection.execute(f"SET threads = {threads}")
    connection.execute("SET lock_configuration = true")


@contextmanager
def registered(connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> Iterator[str]:
    """Make an Arrow table readable for SQL during the block; the result is its quoted name."""
    name = "given rows"  # no class can have this name
    connection.register(name, rows)
    try:
        yield quoted(name)
    finally:
        with suppress(duckdb.Error):  # the transaction is aborted; its error is being raised
            connection.unregister(name)


def lock_folder(folder: Path) -> int:
    """Lock the view's directory for this process; return the descriptor of the lock."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return claim(folder / "view.lock")
    except Claimed as error:
        raise ConfigError(
            f"process {error.holder} has the SQL view in {folder} open already; stop it, or send the "
            "query to it"
        ) from None
    except OSError as error:
        raise StateUnavailable(f"{folder} cannot be written: {error.strerror}") from error
