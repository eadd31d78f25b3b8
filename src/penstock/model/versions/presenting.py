"""The place in which rows of earlier schema versions are upcast for tables: this process, or another one.

A function with `@migrate` is user code: it may never return, or end its process. A process that must go on, such as that
of the SQL view, chooses another place (`deployment.isolated_upcasts`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from penstock.errors import Erased, MigrationFailed
from penstock.model.entity_type import EntityType
from penstock.model.versions.former_class import present_row

Presented = bytes | MigrationFailed | Erased
"""A row as its class is declared, or the reason why it cannot be shown."""

Presenting = Callable[[EntityType, Sequence[str], Sequence[bytes]], Sequence[Presented]]
"""Upcasts rows of a class, from the texts of their keys and their states."""


def present_here(
    entity_type: EntityType, texts: Sequence[str], states: Sequence[bytes]
) -> list[Presented]:
    """Upcast rows in this process.

    Args:
        states: The rows as they are stored.

    Returns:
        A row or a reason for each state.
    """
    rows: list[Presented] = []
    for text, state in zip(texts, states, strict=True):
        try:
            rows.append(present_row(entity_type, text, state))
        except (MigrationFailed, Erased) as error:
            rows.append(error)
    return rows


_places: list[Presenting] = [present_here]


def presented(
    entity_type: EntityType, texts: Sequence[str], states: Sequence[bytes]
) -> Sequence[Presented]:
    """Upcast rows in the chosen place; as `present_here`."""
    return _places[-1](entity_type, texts, states)


@contextmanager
def presenting_with(place: Presenting) -> Iterator[None]:
    """Let all threads of this process upcast rows for tables in a place while the block runs."""
    _places.append(place)
    try:
        yield
    finally:
        _places.remove(place)
