"""Targets as an application names them: the kind of store, without its address, which is a setting."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

POSTGRES_NAME_BYTES: Final = 63
"""PostgreSQL cuts longer names, so that two of them could become one."""

_RESERVED: Final = {"sqlite": "sqlite_"}
"""The beginnings of names that a kind keeps for itself."""

_SYSTEM_COLUMNS: Final = frozenset({"cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"})


class TargetChoice(msgspec.Struct, frozen=True):
    """The kind of a view's target.

    Attributes:
        kind: `sqlite`, `postgres`, `search` or `kafka`.
        personal: Whether tables of personal classes may be shown there, where they are not encrypted.
        schema: The schema of PostgreSQL; empty: that with the name of the view.
        text: The columns of a search index whose words are found; empty: all columns of text.
        facets: Its columns whose values are counted.
    """

    kind: str
    personal: bool = False
    schema: str = ""
    text: tuple[str, ...] = ()
    facets: tuple[str, ...] = ()

    def name_complaints(self, names: Sequence[str]) -> Iterator[str]:
        """Yield the reason for each name of a table or column that the target cannot have."""
        for name in names:
            if "\0" in name:
                yield f"{name!r} contains a NUL character, which no target can have in a name"
            elif self.kind == "postgres" and len(name.encode()) > POSTGRES_NAME_BYTES:
                yield (
                    f"the name {name} takes more than {POSTGRES_NAME_BYTES} bytes, and PostgreSQL would cut it; "
                    "give it a shorter one"
                )
            elif name.lower().startswith(_RESERVED.get(self.kind, "\0")):
                yield f"the name {name} is reserved in {self.kind}; give it another one"
            elif self.kind == "postgres" and name in _SYSTEM_COLUMNS:
                yield f"the name {name} is that of a system column of PostgreSQL; give it another one"


def sqlite(*, personal: bool = False) -> TargetChoice:
    """Show tables in an SQLite file: that of the setting `views.NAME.url`, or one in the data directory.

    Args:
        personal: Whether tables of personal classes may be shown there, where they are not encrypted.
    """
    return TargetChoice("sqlite", personal)


def postgres(*, schema: str = "", personal: bool = False) -> TargetChoice:
    """Show tables in the PostgreSQL database that the setting `views.NAME.url` names.

    Args:
        schema: The schema of the tables; it is created if it is missing. Without it, the name of the view.
        personal: Whether tables of personal classes may be shown there, where they are not encrypted.
    """
    return TargetChoice("postgres", personal, schema)


def kafka(*, personal: bool = False) -> TargetChoice:
    """Show the changes of tables in topics of Kafka, in the envelope of Debezium; `views.NAME.url` has the address.

    Args:
        personal: Whether tables of personal classes may be shown there, where they are not encrypted.
    """
    return TargetChoice("kafka", personal)


def search(
    *, text: Sequence[str] = (), facets: Sequence[str] = (), personal: bool = False
) -> TargetChoice:
    """Show tables in a search index in the data directory.

    Args:
        text: The columns whose words are found; without it, all columns of text.
        facets: The columns whose values are counted.
        personal: Whether tables of personal classes may be shown there, where they are not encrypted.
    """
    return TargetChoice("search", personal, "", tuple(text), tuple(facets))
