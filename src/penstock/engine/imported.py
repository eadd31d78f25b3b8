"""The effect of an import: which of its rows change the state, whether a driver or the serial runtime executes it."""

from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from penstock.base.ids import EntityKey
from penstock.errors import NotUnique, RequestError
from penstock.model.entity_type import EntityType
from penstock.model.index import IndexChanges
from penstock.model.versions.former_class import Presented, presented

Existing = Literal["refuse", "replace", "update", "skip"]
"""The treatment of a row whose entity exists: the whole import is refused, or the row is its state, or only the attributes of the
row change, or the entity stays."""

NAMED_MAX: Final = 20
"""The most rows in a refusal."""


class RowUpdate(msgspec.Struct, frozen=True, array_like=True):
    """A row of an import that updates.

    Attributes:
        row: Its number in the source, from 1.
        values: Its attributes, encoded, by their places in the row of an entity.
        state: The state of a new entity; None if the row makes none.
        why: Then why not, behind the name of the entity.
    """

    row: int
    values: dict[int, msgspec.Raw]
    state: bytes | None
    why: str = ""


encode_update: Final = msgspec.msgpack.Encoder().encode
_decode_update: Final = msgspec.msgpack.Decoder(RowUpdate).decode


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
        refused: How many rows are refused, because of the entities that exist, or that do not.
        named: The first of these: their keys, or texts that say why.
    """

    texts: list[str]
    states: list[bytes]
    created: int = 0
    replaced: int = 0
    unchanged: int = 0
    refused: int = 0
    named: tuple[str, ...] = ()


def imported(
    entity_type: EntityType,
    rows: tuple[Sequence[str], Sequence[bytes]],
    read: Callable[[EntityKey], bytes | None],
    existing: Existing,
    state_bytes: int,
) -> ImportedRows:
    """Return the effect of rows on a state.

    Args:
        entity_type: The class of the rows.
        rows: The texts of the keys, and the states; to update, the encoded `RowUpdate`s.
        read: Returns the state of an entity before; None if it does not exist.
        state_bytes: The most bytes of a state; others than those of updates have been compared with it.
    """
    if existing == "update":
        return _updated(entity_type, rows, read, state_bytes)
    prefix = entity_type.prefix
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


def _updated(
    entity_type: EntityType,
    rows: tuple[Sequence[str], Sequence[bytes]],
    read: Callable[[EntityKey], bytes | None],
    state_bytes: int,
) -> ImportedRows:
    """Return the effect of rows whose attributes alone change; as `imported`."""
    stored = [read(EntityKey(entity_type.prefix + text)) for text in rows[0]]
    held = [(text, row) for text, row in zip(rows[0], stored, strict=True) if row is not None]
    # All at once: user code that makes present rows of former ones may run in another process.
    present = iter(presented(entity_type, [text for text, _ in held], [row for _, row in held]))
    texts: list[str] = []
    states: list[bytes] = []
    replaced = unchanged = 0
    refused: list[str] = []
    for text, data, before in zip(*rows, stored, strict=True):
        update = _decode_update(data)
        former = None if before is None else next(present)
        state = _state_of(entity_type, update, former, state_bytes)
        if isinstance(state, str):
            refused.append(f"row {update.row}: {entity_type.name} {text!r} {state}")
            continue
        if state == former:
            unchanged += 1
            continue
        replaced += former is not None
        texts.append(text)
        states.append(state)
    created, named = len(texts) - replaced, tuple(refused[:NAMED_MAX])
    return ImportedRows(texts, states, created, replaced, unchanged, len(refused), named)


def _state_of(
    entity_type: EntityType, update: RowUpdate, former: Presented | None, state_bytes: int
) -> bytes | str:
    """Return the state that an updating row gives to its entity, or why it gives none.

    Args:
        former: The present state; None if the entity does not exist.
    """
    if former is None:
        return f"does not exist, and {update.why}" if update.state is None else update.state
    if not isinstance(former, bytes):
        return f"cannot be read: {former}"
    state = entity_type.replaced(former, update.values)
    if len(state) > state_bytes:
        return f"would take {len(state)} bytes, more than limits.state_bytes = {state_bytes}"
    return state


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


def refusal_of(entity: str, refused: int, named: Sequence[str], existing: Existing) -> str:
    """Return the message about rows that are refused, with the remedy; see `ImportedRows`."""
    if existing == "update":
        first = sorted(named, key=lambda text: int(text.partition(":")[0].removeprefix("row ")))
        shown = "; ".join(first[:NAMED_MAX])
        more = "; …" if refused > min(len(named), NAMED_MAX) else ""
        return (
            f"{refused} of the rows cannot update {entity}: {shown}{more}; nothing is imported. Give the columns that a new entity "
            "needs, or leave the rows out"
        )
    shown = ", ".join(sorted(named)[:NAMED_MAX])
    more = ", …" if refused > min(len(named), NAMED_MAX) else ""
    return (
        f"{refused} of the entities exist in {entity}: {shown}{more}; nothing is imported. --existing replace gives them the states "
        "of the rows, --existing update changes the attributes that have a column, --existing skip keeps them"
    )
