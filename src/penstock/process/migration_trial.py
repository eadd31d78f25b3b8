"""The trial of functions with `@migrate` on stored entities, before their code is deployed.

A function that fails for an entity would fail each request that reads it. The functions run in a child process, so that they
may do whatever they want. A trial reads the first entities of a class, in the order of their keys.
"""

from contextlib import closing
from typing import Final

from penstock.base.ids import EntityKey, split_entity_key
from penstock.errors import ClassChanged, MigrationFailed
from penstock.journal.api import Journal
from penstock.model.application import App
from penstock.model.entity_type import EntityType
from penstock.process.data_directory import DataDirectory
from penstock.process.isolated_upcasts import IsolatedUpcasts
from penstock.state.newest import at_newest
from penstock.state.stores import PartitionedReader

ROWS_MAX: Final = 5_000
"""The most entities of a class that a trial reads."""

_BYTES_MAX: Final = 64 << 20

_Rows = dict[EntityKey, bytes]


def try_migrations(directory: DataDirectory, app: App, journal: Journal) -> None:
    """Upcast stored entities of the classes whose functions may run, and refuse code that cannot.

    Args:
        directory: The data directory.
        app: The application with the code, for which the journal is open.
        journal: The journal.

    Raises:
        ClassChanged: A function fails for an entity, or its result does not fit the class; nothing was written.
        Corrupt: A file of the data directory is damaged.
        OperationalError: The disk fails.
    """
    upcasts = IsolatedUpcasts()
    for entity_type, rows in _samples(directory, app, journal):
        texts = [split_entity_key(key)[1] for key in rows]
        for key, made in zip(rows, upcasts(entity_type, texts, list(rows.values())), strict=True):
            if isinstance(made, MigrationFailed):
                raise ClassChanged(
                    f"the application's classes cannot read the entities that {directory.path} holds:\n"
                    f"  {key}: {made}\n"
                    "Nothing was written. Correct the function: it must accept every stored entity of its version."
                )


def try_new_migrations(directory: DataDirectory, app: App) -> None:
    """Do the same as `try_migrations`, before a start deploys the code; raises as it."""
    with closing(directory.open_journal(app)) as journal:
        try_migrations(directory, app, journal)


def _samples(
    directory: DataDirectory, app: App, journal: Journal
) -> list[tuple[EntityType, _Rows]]:
    """Return each class that has functions, with its first entities at the newest epoch."""
    migrating = [each for each in app.stored.values() if each.migrations]
    if not migrating:
        return []

    def read(reader: PartitionedReader) -> list[tuple[EntityType, _Rows]]:
        return [(each, _first_rows(reader, each.prefix)) for each in migrating]

    with closing(directory.open_stores(journal)) as stores:
        return at_newest(journal, stores, read) or []


def _first_rows(reader: PartitionedReader, prefix: str) -> _Rows:
    rows: _Rows = {}
    size = 0
    for key, row in reader.items_of(prefix):
        rows[key] = row
        size += len(row)
        if len(rows) == ROWS_MAX or size > _BYTES_MAX:
            break
    return rows
