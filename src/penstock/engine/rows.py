"""Rows for callers from outside: one entity, or a page of the entities of a class, as far as the right of the class allows.

Promises that a page tells nothing of a row that its caller may not see: neither its values nor its key, and no number of
such rows. The right is asked first and the filters come after it, so the time that a page takes says nothing of the values
of hidden rows. A class without a right has no hidden rows: where its filters have all attributes of an index, a page reads the
rows that the index names. All rows are those of one state.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from penstock.base.ids import EntityKey, RequestId
from penstock.engine.execute import Executor, Outcome
from penstock.errors import (
    Corrupt,
    Erased,
    Forbidden,
    IntegrityError,
    LimitExceeded,
    NoSuchEntity,
    OperationalError,
    RequestError,
)
from penstock.model.application import App, unknown
from penstock.model.context import Transaction
from penstock.model.entity_page import LIMIT
from penstock.model.entity_type import EntityType
from penstock.model.index import NUL
from penstock.model.request import decode_failure, encode_failure
from penstock.model.right import RIGHT
from penstock.model.value_filter import ValueFilter, value_filter

_BYTES_MAX: Final = 1 << 20
"""A page ends with the row that reaches so many bytes."""

_LOOKED_MAX: Final = 50_000
"""A page of a class without a right ends after so many rows that do not fit its filters."""

_KEPT_MAX: Final = 500
"""The rows that a transaction holds for the right; it lets them go then."""

ItemsOf = Callable[[str, str], Iterable[tuple[EntityKey, bytes]]]
"""Yields the entities whose keys begin with a prefix, in order, behind a text."""


class RowsWanted(msgspec.Struct, frozen=True, array_like=True):
    """A question for rows.

    Attributes:
        rights: The rights of the caller; see `model.principal`.
        key: The text of the key of one entity; None for a page.
        after: The text of the key behind which a page begins; empty for the first page.
        where: The texts of the values that attributes must have.
    """

    entity: str
    rights: bytes = b""
    key: str | None = None
    after: str = ""
    limit: int = LIMIT
    where: dict[str, str] = {}


class _State(NamedTuple):
    """The state of a page."""

    read: Callable[[EntityKey], bytes | None]
    items_of: ItemsOf


class RowsFound(msgspec.Struct, frozen=True, array_like=True):
    """Rows with the texts of their keys, and where the next page begins; None after the last row of the class."""

    rows: list[tuple[str, bytes]]
    after: str | None = None


_encode: Final = msgspec.msgpack.Encoder().encode
decode_rows: Final = msgspec.msgpack.Decoder(RowsFound).decode


def find_rows(  # noqa: PLR0913 -- the question, and the parts that answer it
    app: App,
    executor: Executor,
    request_id: RequestId,
    time_us: int,
    wanted: RowsWanted,
    read: Callable[[EntityKey], bytes | None],
    items_of: ItemsOf,
) -> Outcome:
    """Return the outcome of a question for rows: its reply is `RowsFound`, encoded.

    Args:
        request_id: The id of the question, with its principal; no log has it.
        read: Reads a row of the state; `items_of` reads the same state.

    Raises:
        IntegrityError, OperationalError: The rows cannot be read.
    """
    txn = Transaction(request_id, time_us, read, app.entities, executor.secret)
    txn.rights = wanted.rights

    def work() -> tuple[bytes, dict[EntityKey, bytes | None]]:
        entity = app.entity(wanted.entity)
        try:
            if wanted.key is not None:
                page = RowsFound([_row_of(entity, wanted.key, executor, txn)])
            else:
                page = _page_of(entity, wanted, executor, txn, _State(read, items_of))
        except (IntegrityError, OperationalError) as error:  # no answer: the state cannot be read
            txn.damage = error
            raise
        return _encode(page), {}

    outcome = executor.perform(txn, work)
    is_page = wanted.key is None
    if is_page and outcome.error == LimitExceeded.code and app.entity(wanted.entity).allows:
        return _page_exceeded(wanted.entity, outcome)
    return outcome


def _page_exceeded(entity: str, outcome: Outcome) -> Outcome:
    """Name the remedy of a page: a longer `@limit`, the remedy of a handler, has no effect on it."""
    failure = decode_failure(outcome.reply)
    limit, _, _ = failure.message.partition("; ")
    why = (
        f"a page of {entity} asks {RIGHT} of each entity until it is full, and {limit}; find the entities of the caller "
        f"by an index, in a @readonly function: {entity}.by_owner(principal().id)"
    )
    told = encode_failure(msgspec.structs.replace(failure, message=why))
    return msgspec.structs.replace(outcome, reply=told)


def _row_of(
    entity: EntityType, text: str, executor: Executor, txn: Transaction
) -> tuple[str, bytes]:
    key = EntityKey(entity.prefix + text)
    row = txn.row(key)
    if row is None:
        raise NoSuchEntity(f"{entity.name} {text!r} does not exist")
    if entity.allows is not None:
        executor.require_right(entity, entity.of_text(text), txn)
    return text, entity.present(entity.key_at(text), row)


def _page_of(
    entity: EntityType, wanted: RowsWanted, executor: Executor, txn: Transaction, state: _State
) -> RowsFound:
    filters = _filters_of(entity, wanted.where)
    values = {name: each.value for name, each in filters.items()}
    rows: list[tuple[str, bytes]] = []
    size = 0
    for looked, (text, row) in enumerate(
        _rows_behind(entity, wanted.after, values, state), start=1
    ):
        if looked % _KEPT_MAX == 0:
            txn.forget()
        if entity.allows is not None and not _may_see(entity, text, executor, txn):
            continue
        key = entity.key_at(text)
        plain = entity.plain(key, row)
        if all(each.fits(plain[name]) for name, each in filters.items()):
            row = entity.present(key, row)
            rows.append((text, row))
            size += len(row)
            if len(rows) >= wanted.limit or size >= _BYTES_MAX:
                return RowsFound(rows, text)
        elif (
            looked >= _LOOKED_MAX and entity.allows is None
        ):  # else the key would be that of a hidden row
            return RowsFound(rows, text)
    return RowsFound(rows)


def _rows_behind(
    entity: EntityType, after: str, values: Mapping[str, Any], state: _State
) -> Iterator[tuple[str, bytes]]:
    """Yield the rows that a page looks at, by key; those that do not fit its filters may be left out."""
    indexed = None if entity.allows is not None else _indexed(entity, after, values, state)
    if indexed is not None:
        for text in indexed:
            if NUL in text:  # those behind it are not in order
                break
            row = state.read(EntityKey(entity.prefix + text))
            if row is None:
                raise Corrupt(
                    f"an index of {entity.name} names {text!r}, which does not exist; penstock verify looks for the cause"
                )
            yield text, row
            after = text
        else:
            return
    skip = len(entity.prefix)
    for key, row in state.items_of(entity.prefix, after):
        yield key[skip:], row


def _indexed(
    entity: EntityType, after: str, values: Mapping[str, Any], state: _State
) -> Iterator[str] | None:
    """Return the keys that an index finds by the filters; None if no index does."""
    ways = sorted(entity.indexes, key=lambda each: (each.is_unique, len(each.parts)), reverse=True)
    by_way = (each.keys_behind(values, after, state.read) for each in ways)
    return next((texts for texts in by_way if texts is not None), None)


def _may_see(entity: EntityType, text: str, executor: Executor, txn: Transaction) -> bool:
    try:
        executor.require_right(entity, entity.of_text(text), txn)
    except (Forbidden, Erased):
        return False
    return True


def _filters_of(entity: EntityType, where: Mapping[str, str]) -> dict[str, ValueFilter]:
    """Return the filter of each attribute that a page names.

    Raises:
        RequestError: The class has no such attribute, or no value of it has such a text.
    """
    if lacking := [name for name in where if name not in entity.attributes]:
        raise RequestError(unknown(f"attribute of {entity.name}", lacking[0], entity.attributes))
    return {
        name: value_filter(f"{entity.name}.{name}", entity.attributes[name], text)
        for name, text in where.items()
    }
