"""The trial of functions with `@migrate` on stored entities, before their code is deployed.

A function that fails for an entity would fail each request that reads it. The functions run in a child process, so that they
may do whatever they want. A trial takes each n-th entity of a class, in the order of the keys, so two trials of the same
state take the same entities.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Final, NamedTuple

from penstock.base.ids import EntityKey, split_entity_key
from penstock.deployment.code_in_force import is_in_force
from penstock.deployment.isolated_upcasts import IsolatedUpcasts
from penstock.errors import ClassChanged, MigrationFailed
from penstock.journal.api import Journal
from penstock.model.application import App
from penstock.model.entity_type import EntityType
from penstock.model.versions.former_class import Presented
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.state.newest import at_newest
from penstock.state.stores import PartitionedReader

ROWS_MAX: Final = 5_000
"""The most entities of a class that a trial takes."""

SCANNED_MAX: Final = 1_000_000
"""The first entities of a class, from which a trial takes each n-th: they bound its time."""

TRIAL_S: Final = 20.0
"""The time that a trial takes for all classes together; it ends later by one part of each class at most."""

_PART_S: Final = 0.5
"""A part that takes less time is followed by one of twice its size."""

_PARTS: Final = 50
"""Entities that follow each other in a trial are this far from each other in its sample."""

_BYTES_MAX: Final = 64 << 20


class _Sample(NamedTuple):
    """Entities of a class.

    Attributes:
        scanned: The number of entities from which they were taken.
        is_whole: Whether the class has no further entities.
    """

    entity_type: EntityType
    rows: dict[EntityKey, bytes]
    scanned: int
    is_whole: bool


def try_migrations(directory: DataDirectory, app: App, journal: Journal) -> list[str]:
    """Upcast stored entities of the classes whose functions may run, and refuse code that cannot.

    Args:
        app: The application with the code, for which the journal is open.

    Returns:
        For each class, a sentence that says how many entities were tried.

    Raises:
        ClassChanged: A function fails for an entity, or its result does not fit the class; nothing was written.
    """
    lines = []
    samples = _samples(directory, app, journal)
    for sample in samples:
        tried = 0
        for key, made in _results(sample, TRIAL_S / len(samples)):
            if isinstance(made, MigrationFailed):
                raise ClassChanged(
                    f"the application's classes cannot read the entities that {directory.path} holds:\n"
                    f"  {key}: {made}\n"
                    "Nothing was written. Correct the function: it must accept every stored entity of its version."
                )
            tried += 1
        if tried:
            lines.append(_text_of(sample, tried))
    return lines


def try_new_migrations(app: App, settings: Config) -> list[str]:
    """Try the functions of code that a start will deploy; return and raise as `try_migrations`.

    Code that is in force was tried before.

    Args:
        settings: Its settings, which name it and the data directory.
    """
    directory = DataDirectory(settings.data)
    if directory.app_name is None or is_in_force(settings.data, settings.app):
        return []
    with closing(directory.open_journal(app)) as journal:
        return try_migrations(directory, app, journal)


def _results(sample: _Sample, limit_s: float) -> Iterator[tuple[EntityKey, Presented]]:
    """Yield each entity with its upcast row, or the failure, until the time is over."""
    upcasts = IsolatedUpcasts()
    every = list(sample.rows.items())
    items = [item for first in range(_PARTS) for item in every[first::_PARTS]]
    end = time.monotonic() + limit_s
    place, size = (
        0,
        1,
    )  # the first part is a single entity, so that a slow function does not exceed the time
    while place < len(items):
        began = time.monotonic()
        if place and began > end:
            return
        keys, rows = zip(*items[place : place + size], strict=True)
        texts = [split_entity_key(key)[1] for key in keys]
        yield from zip(keys, upcasts(sample.entity_type, texts, rows), strict=True)
        place += size
        if time.monotonic() - began < _PART_S:
            size *= 2


def _text_of(sample: _Sample, tried: int) -> str:
    of = f"{sample.scanned:,}" if sample.is_whole else f"the first {sample.scanned:,}"
    name = sample.entity_type.name
    return f"{name}: @migrate was tried on {tried:,} of {of} stored entities"


def _samples(directory: DataDirectory, app: App, journal: Journal) -> list[_Sample]:
    """Return entities of each class that has functions, at the newest epoch."""
    migrating = [each for each in app.stored.values() if each.migrations]
    if not migrating:
        return []

    def read(reader: PartitionedReader) -> list[_Sample]:
        return [_spread(each, reader.items_of(each.prefix)) for each in migrating]

    with closing(directory.open_stores(journal)) as stores:
        return at_newest(journal, stores, read) or []


def _spread(entity_type: EntityType, items: Iterator[tuple[EntityKey, bytes]]) -> _Sample:
    """Return each n-th entity, with the smallest n that a trial can take; n is a power of two."""
    kept: list[tuple[EntityKey, bytes]] = []
    step, size, scanned = 1, 0, 0
    for number, (key, row) in enumerate(islice(items, SCANNED_MAX)):
        scanned = number + 1
        if number % step:
            continue
        kept.append((key, row))
        size += len(row)
        while len(kept) > ROWS_MAX or (size > _BYTES_MAX and len(kept) > 1):
            kept = kept[::2]
            step *= 2
            size = sum(len(row) for _, row in kept)
    return _Sample(entity_type, dict(kept), scanned, next(items, None) is None)
