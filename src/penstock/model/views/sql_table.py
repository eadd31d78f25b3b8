"""Tables of a view that are written in SQL; see `sql`."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import msgspec

from penstock.model.declaration import caller_place

EVERY: Final = timedelta(seconds=2)
"""How often a query is asked at most, where nothing else is said."""

EVERY_MIN: Final = timedelta(milliseconds=100)


class SqlTable(msgspec.Struct, frozen=True):
    """A table whose rows are the answer of a query; see `sql`.

    Attributes:
        key: The columns whose values name a row.
        name: The name of the table; empty: that of the view.
        where: `file:line` of the declaration.
    """

    query: str
    key: tuple[str, ...]
    every: timedelta
    name: str
    where: str

    def complaints(self) -> Iterator[str]:
        """Yield the mistakes of the declaration; the query itself is checked at a deployment."""
        query: Any = self.query
        if not isinstance(query, str) or not query.strip():
            yield f"its query is {query!r}; write a SELECT"
        names: tuple[Any, ...] = self.key
        if not names or not all(isinstance(name, str) and name for name in names):
            yield f"key={names!r}: name the column, or the columns, that tell one row from the others"
        elif len(set(names)) < len(names):
            yield f"key={names!r} names a column twice"
        every: Any = self.every
        if not isinstance(every, timedelta):
            yield f"every={every!r}: write it as timedelta(seconds=2)"
        elif every < EVERY_MIN:
            least = EVERY_MIN.total_seconds()
            yield f"every={every!r}: it is at least {least:g} s; show classes themselves where that is too slow"
        name: Any = self.name
        if not isinstance(name, str):
            yield f"name={name!r}: write the name of the table as text"
        elif "/" in name:
            yield f"name={name!r}: the name of a table has no /"


def sql(
    query: str,
    /,
    *,
    key: str | tuple[str, ...] | list[str],
    every: timedelta = EVERY,
    name: str = "",
) -> SqlTable:
    """Show the answer of a query as a table of a view.

    The query reads entity classes, and the attributes of tasks, by the names that they have for `penstock sql`. Its answer
    must follow from them: `now()` and `random()` are refused. A view asks again when something has changed that it reads,
    and sends the difference to the target.

    Args:
        query: One SELECT.
        key: The column of the answer that tells one row from the others, or several columns. A row whose key is NULL, or
            that has its key in common with another one, is absent, and listed in the table `_failed`.
        every: The shortest time between two questions, at least 0.1 s. The other tables of the view wait meanwhile.
        name: The name of the table; without it, that of the view.
    """
    given: Any = key
    keys = tuple(given) if isinstance(given, tuple | list) else (given,)
    return SqlTable(query, keys, every, name, caller_place())
