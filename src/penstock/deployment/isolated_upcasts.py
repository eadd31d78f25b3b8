"""Upcasts in a child process, for processes that must go on even if a function with `@migrate` kills its process.

`process.isolated_calls` says what becomes of a function that never returns, or that ends its process. The function of a
later deployment is another one.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from penstock.errors import Erased, MigrationFailed
from penstock.model.entity_type import EntityType
from penstock.model.reply import raised_by
from penstock.model.shape import tag_of
from penstock.model.upcast import Migrating
from penstock.model.versions.former_class import (
    Presented,
    present_here,
    present_row,
    presenting_with,
)
from penstock.process.isolated_calls import CALL_S, PATIENCE, Called, IsolatedCalls, Outcome


class _Functions(NamedTuple):
    """The functions that the upcast of a row calls, and their name in messages."""

    label: str
    functions: tuple[Migrating | None, ...]


class IsolatedUpcasts:
    """Upcasts rows; those that need user code in a child process."""

    def __init__(self, call_s: float = CALL_S, patience: int = PATIENCE) -> None:
        self._calls = IsolatedCalls(call_s, patience)

    def __call__(
        self, entity_type: EntityType, texts: Sequence[str], states: Sequence[bytes]
    ) -> list[Presented]:
        """Upcast rows, as `present_here` does."""
        called = [_functions(entity_type, state) for state in states]
        direct = [place for place, functions in enumerate(called) if functions is None]
        made = present_here(
            entity_type, [texts[it] for it in direct], [states[it] for it in direct]
        )
        rows: dict[int, Presented] = dict(zip(direct, made, strict=True))
        by_user = {
            place: Called(functions, functions.label, (texts[place], states[place]))
            for place, functions in enumerate(called)
            if functions is not None
        }
        places = list(by_user)
        outcomes = self._calls.outcomes(
            lambda index: present_row(entity_type, texts[places[index]], states[places[index]]),
            list(by_user.values()),
        )
        rows.update(zip(places, map(_presented, outcomes), strict=True))
        return [rows[place] for place in range(len(states))]


def _presented(outcome: Outcome) -> Presented:
    """Return a row or the reason of its absence; an error that is not of a single row is raised."""
    if isinstance(outcome, bytes):
        return outcome
    error = MigrationFailed(outcome) if isinstance(outcome, str) else raised_by(outcome)
    if not isinstance(error, MigrationFailed | Erased):
        raise error
    return error


@contextmanager
def isolated_upcasts() -> Iterator[None]:
    """Let tables upcast rows in child processes while the block runs."""
    with presenting_with(IsolatedUpcasts()):
        yield


def _functions(entity_type: EntityType, state: bytes) -> _Functions | None:
    """Return the functions that the upcast of a row calls; None without any."""
    if state.startswith(entity_type.row_head) or not entity_type.migrations:
        return None
    tag, later = tag_of(state), []
    for version in reversed(entity_type.versions):
        if version.shape.tag == tag:
            break
        if version.migrated:
            later.append(version.number)
    if not later:
        return None
    later.reverse()
    numbers = ", ".join(f"since={number}" for number in later)
    functions = tuple(map(entity_type.migrations.get, later))
    return _Functions(f"{entity_type.name}: @migrate(…, {numbers})", functions)
