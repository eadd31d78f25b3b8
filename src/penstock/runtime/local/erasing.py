"""Erasures on the local runtime: the entity is deleted, and the key of its data is destroyed, at once."""

from penstock.base.ids import EntityKey
from penstock.base.subject_keys import MemoryKeys
from penstock.engine.replay import apply_changes
from penstock.errors import RequestError
from penstock.files.layout import SUBJECT_KEYS
from penstock.model.application import App
from penstock.model.control import Erase
from penstock.model.index import left_indexes
from penstock.model.personal import rows_of


def erase(app: App, state: dict[EntityKey, bytes], control: Erase) -> None:
    """Execute the control record of an erasure, as the driver does.

    Keys in the file of a data directory stay as they are: only a driver destroys them.

    Args:
        state: All rows; those of the person are removed.

    Raises:
        RequestError: The person was erased meanwhile, or there are no keys.
    """
    if app.keys is None:
        raise RequestError(f"{SUBJECT_KEYS} is missing, so there is no key to destroy")
    rows = rows_of(app.readable.values(), EntityKey(control.subject))
    left = left_indexes(app.indexed, rows, state.get)  # which needs the key
    if isinstance(app.keys, MemoryKeys):
        if app.keys.generation(control.subject) != control.generation:
            raise RequestError(f"{control.subject} was erased already")
        app.keys.destroy(control.subject)
    apply_changes(state, {**dict.fromkeys(rows), **left})


def generation_of(app: App, subject: EntityKey) -> int:
    """Return how often a person was erased, as far as the keys in memory know it."""
    return app.keys.generation(subject) if isinstance(app.keys, MemoryKeys) else 0
