"""Row functions: each makes rows of one entity, for views and for published tables.

A row function is pure: it sees the attributes of its entity and the keys of its references. So rows change only with
their entity, and whoever has the state of an entity can make its rows.
"""

import typing
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar, cast

from penstock.base.record import is_record
from penstock.base.schema import name_of
from penstock.errors import Unencodable, UserError
from penstock.model.declaration import where_of
from penstock.model.resolver import Resolver
from penstock.model.streams.event_type import EventType

E = TypeVar("E")
R = TypeVar("R")

ROWS_MAX: Final = 10_000
"""The most rows that a row function may make of one entity."""

_BYTES_MAX: Final = 16 << 20

READS_MORE: Final = "it reads another entity; a row function has the attributes of its entity, and the keys of references"
_TOO_MANY: Final = (
    f"it makes more than {ROWS_MAX} rows of one entity, or more than {_BYTES_MAX >> 20} MB"
)
_SEVERAL: Final = frozenset({"Iterator", "Iterable", "Generator", "list", "Sequence", "tuple"})


class RowFunction(Generic[E, R]):
    """A function that makes the rows of one entity; see `rows`.

    Attributes:
        name: The name of the function, which is that of the table.
        source: The entity class.
    """

    def __init__(self, function: Callable[[E], R], source: type[E]) -> None:
        self.function = function
        self.source = source
        self.name = function.__name__
        self.where = where_of(function)
        self.__doc__ = function.__doc__

    def __repr__(self) -> str:
        return f"<rows {self.name}>"

    def __call__(self, entity: E) -> R:
        """Make the rows of an entity, as in a test."""
        return self.function(entity)


def rows(source: type[E], /) -> Callable[[Callable[[E], R]], RowFunction[E, R]]:
    """Make a function the source of a table of a view.

    The function takes one entity, and returns or yields records: none, one or several. It may read the attributes of the
    entity, and the keys of its references. It runs again when the entity has changed. If it raises an error, the rows of
    this entity are absent, and the table `_failed` of the view says why. `publish` makes a table for other applications of it.

    Args:
        source: The entity class.
    """
    return lambda function: RowFunction(function, source)


def rows_of(shown: RowFunction[Any, Any], resolver: Resolver) -> tuple[EventType[Any], bool] | None:
    """Return the type of the rows of a function, and whether it returns one at most.

    Returns:
        None after a complaint of the resolver.
    """
    complaints = resolver.complaints
    before = len(complaints)
    annotation = resolver.hints(shown.function, shown.name).get("return", Any)
    row_type, is_single = _row_type_in(annotation)
    if len(complaints) == before and not is_record(row_type):
        complaints.append(
            f"{shown.where}: {shown.name} returns {name_of(row_type)}; annotate it with the record of its rows, as in "
            "-> Iterator[OpenOrder], or -> OpenOrder | None"
        )
    if len(complaints) == before:
        what = f"{shown.name} ->"
        row_type = resolver.resolve(row_type, shown.function, shown.where, what)
    if len(complaints) > before:
        return None
    return EventType(f"the rows of {shown.name}", row_type, "rows"), is_single


def encoded_rows(made: Any, encode: Callable[[int, Any], bytes], *, is_single: bool) -> list[bytes]:
    """Return the encoded rows that a row function has made of one entity.

    Args:
        made: What the function has returned; an iterator runs the function.
        encode: Encodes a row, with its place.

    Raises:
        UserError: The function returns no rows.
        Unencodable: A row has another type, or there are too many.
    """
    encoded: list[bytes] = []
    size = 0
    for place, row in enumerate(_rows_in(made, is_single=is_single)):
        encoded.append(encode(place, row))
        size += len(encoded[-1])
        if len(encoded) > ROWS_MAX or size > _BYTES_MAX:
            raise Unencodable(_TOO_MANY)
    return encoded


def _rows_in(made: Any, *, is_single: bool) -> Iterable[Any]:
    if is_single:
        return () if made is None else (made,)
    if made is None:
        raise UserError("returned None instead of its rows")
    return cast("Iterable[Any]", made)


def _row_type_in(annotation: Any) -> tuple[Any, bool]:
    """Return the type of a row in the return type of a row function, and whether it returns at most one row."""
    arguments = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if getattr(origin, "__name__", "") in _SEVERAL and arguments:
        return arguments[0], False
    others = [each for each in arguments if each is not type(None)]
    if len(others) == 1 and len(arguments) > 1:
        return others[0], True
    return annotation, True
