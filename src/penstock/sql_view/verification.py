"""Verification of a view's file: it can be read, and is of the journal in the same directory.

The check only reads. A view that starts rebuilds a file that it cannot read, and one of another journal. It does not compare rows: each batch is applied with its epoch in one transaction.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import duckdb

from penstock.base.cause import cause_text
from penstock.base.ids import Epoch
from penstock.history.verification import Finding, NotChecked, harmless, rebuildable
from penstock.process import presence
from penstock.snapshots.column import quoted
from penstock.sql_view.system_tables import SYSTEM
from penstock.sql_view.view_store import FOLDER

_ROWS: Final = 10_000


def check_view(data: Path, identity: str, newest: Epoch) -> Iterator[Finding]:
    """Check the view of a data directory, if there is one."""
    files = sorted((data / FOLDER).glob("*.duckdb"))
    if files and presence.find(data, "view"):
        raise NotChecked("the SQL view: it runs, and repairs itself")
    for path in files:
        where = f"{FOLDER}/{path.name}"
        try:
            with duckdb.connect(str(path), read_only=True) as connection:
                yield from _content(connection, identity, newest, where)
        except duckdb.Error as error:
            yield harmless(f"it cannot be read: {cause_text(error)}", where)


def _content(
    connection: duckdb.DuckDBPyConnection, identity: str, newest: Epoch, where: str
) -> Iterator[Finding]:
    for epoch, journal in connection.table(f"{SYSTEM}.view").project("epoch, journal").fetchall():
        if journal != identity:
            yield harmless("it was built from another journal", where)
        elif epoch > newest:
            yield rebuildable(f"it is at epoch {epoch}, which the journal does not have", where)
    tables = connection.execute(
        "SELECT table_schema, table_name FROM information_schema.tables "
        "WHERE table_type = 'BASE TABLE'"
    ).fetchall()
    for schema, name in tables:
        for _ in connection.table(f"{quoted(schema)}.{quoted(name)}").to_arrow_reader(_ROWS):
            pass
