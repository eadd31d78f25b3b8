"""The effect of an import: which of its rows change the state, whether a driver or the serial runtime executes it."""

from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from penstock.base.ids import EntityKey
from penstock.errors import NotUnique, RequestError
from penstock.model.entity_type import EntityType
from penstock.model.index import IndexChanges

Existing = Literal["refuse", "replace", "skip"]
"""The treatment of a row whose entity exists: the whole import is refused, or the row counts, or the entity stays."""

NAMED_MAX: Final = 20
"""The most keys in a refusal."""


class ImportResult(msgspec.Struct, frozen=True):
    """The effect of an import.

    Attributes:
        entity: The class.
        created: How many entities are new.
        replaced: How many entities got another state.
        unchanged: How many rows changed nothing: their entities were kept, or had this state already.
        epoch: The epoch that has them; None if no driver has executed the order yet, or if it was a trial.
    """

    entity: str
    created: int
    replaced: int = 0
    unchanged: int = 0
    epoch: int | None = None


class ImportedRows(NamedTuple):
    """The effect of some rows.

    Attributes:
        texts: The keys that the rows change.
        states: Their states.
        created: How many entities are new.
        replaced: How many entities get another state.
        unchanged: How many rows change nothing: their entities are kept, or have this state already.
        taken: How many entities exist, where that is refused.
        named: The first of these.
    """

    texts: list[str]
    states: list[bytes]
    created: int = 0
    replaced: int = 0
    unchanged: int = 0
    taken: int = 0
    named: tuple[str, ...] = ()


def imported(
    prefix: str,
    rows: tuple[Sequence[str], Sequence[bytes]],
    read: Callable[[EntityKey], bytes | None],
    existing: Existing,
) -> ImportedRows:
    """Return the effect of rows on a state.

    Args:
        prefix: The beginning of the keys of the class.
        rows: The texts of the keys, and the states.
        read: Returns the state of an entity before; None if it does not exist.
    """
    texts: list[str] = []
    states: list[bytes] = []
    replaced = unchanged = 0
    taken: list[str] = []
    for text, state in zip(*rows, strict=True):
        before = read(EntityKey(prefix + text))
        if before is not None:
            if existing == "refuse":
                taken.append(text)
                continue
            if existing == "skip" or before == state:
                unchanged += 1
                continue
            replaced += 1
        texts.append(text)
        states.append(state)
    created, named = len(texts) - replaced, tuple(taken[:NAMED_MAX])
    return ImportedRows(texts, states, created, replaced, unchanged, len(taken), named)


class ImportedIndexes:
    """The changes of indexes that imported rows make.

    Args:
        entity_type: The class of the rows.
        read: Returns a row of the state before the import.
    """

    def __init__(self, entity_type: EntityType, read: Callable[[EntityKey], bytes | None]) -> None:
        self._type = entity_type
        self._read = read
        self._changes = IndexChanges(read)

    def note(self, rows: ImportedRows) -> None:
        """Note rows that change the state; raises `RequestError` as `rows`."""
        if not self._type.indexes:
            return
        for text, state in zip(rows.texts, rows.states, strict=True):
            key = EntityKey(self._type.prefix + text)
            before = self._read(key)
            if before is not None:
                before = self._type.present(self._type.key_at(text), before)
            try:
                self._changes.note(self._type, key, before, state)
            except NotUnique as error:
                raise _not_unique(error) from error

    def rows(self) -> dict[EntityKey, bytes | None]:
        """Return the rows of indexes that change.

        Raises:
            RequestError: Two entities would have the same value of a unique index; the import is refused.
        """
        try:
            return self._changes.rows()
        except NotUnique as error:
            raise _not_unique(error) from error


def _not_unique(error: NotUnique) -> RequestError:
    return RequestError(f"{error}; nothing is imported")


def result_of(entity: str, every: Sequence[ImportedRows], epoch: int) -> ImportResult:
    """Return the result of the effects of all rows, none of which is refused."""
    return ImportResult(
        entity,
        sum(each.created for each in every),
        sum(each.replaced for each in every),
        sum(each.unchanged for each in every),
        int(epoch),
    )


def refusal_of(entity: str, taken: int, named: Sequence[str]) -> str:
    """Return the message about entities that exist, where that is refused."""
    shown = ", ".join(sorted(named)[:NAMED_MAX])
    more = ", …" if taken > min(len(named), NAMED_MAX) else ""
    return (
        f"{taken} of the entities exist in {entity}: {shown}{more}; nothing is imported. --existing replace gives them the states "
        "of the rows, --existing skip keeps them"
    )
