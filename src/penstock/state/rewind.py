"""Rewinding: the entities of one class as they were after an epoch, as a typed table.

Promises the same rows in the same order (of keys, by their bytes) whenever the same epoch is asked
for, whatever was compacted or written as a snapshot meanwhile. Reads the journal, and writes nothing.
"""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.journal.api import Journal
from penstock.model.application import App
from penstock.state.changes import folded
from penstock.state.column import TooNarrow
from penstock.state.table import EntityTable, tables_of


class Rewound(NamedTuple):
    """A class as it was after an epoch.

    Attributes:
        table: Its columns; wide where a value wanted it.
        rows: One for each entity, in the order of keys.
    """

    table: EntityTable
    rows: pa.Table


def rewound(app: App, journal: Journal, entity: str, epoch: Epoch) -> Rewound:
    """Return the entities of a class after an epoch.

    Raises:
        Diverged: The journal does not reach so far back, or holds what does not fit the class.
        Corrupt: A part of it is damaged.
    """
    changes = folded(journal, entity, BEFORE_FIRST, epoch)
    present = changes.filter(pc.is_valid(changes["state"]))
    return typed(app, entity, present)


def typed(app: App, entity: str, states: pa.Table) -> Rewound:
    """Return states (columns `key`, `state`) as rows of their class's table."""
    keys, values = states["key"].to_pylist(), states["state"].to_pylist()
    table = tables_of(app)[entity]
    try:
        return Rewound(table, table.rows(keys, values))
    except TooNarrow:
        table = tables_of(app, [entity])[entity]
        return Rewound(table, table.rows(keys, values))
