"""Damage: what errors of DuckDB say of its file and of its memory."""

from typing import Final

import duckdb

BREAKDOWNS: Final = ("INTERNAL Error", "FATAL Error")
_DAMAGES: Final = ("IO Error", "Serialization Error", "Corrupt database file", *BREAKDOWNS)
"""How DuckDB's messages begin when it or its file cannot be trusted any more; while rows flow, only
the message says which error it is."""

_SHORT_OF_MEMORY: Final = ("could not allocate block", "failed to pin block", "failed to allocate")
"""What a checkpoint says, whose error is one of input and output, where memory is short."""


class ViewDamaged(Exception):
    """The file, or DuckDB itself, has broken down; the view must be opened or made anew."""


def is_damage(error: Exception) -> bool:
    """Say whether an error of DuckDB is no answer to what it was asked."""
    return str(error).startswith(_DAMAGES)


def wants_memory(error: Exception) -> bool:
    """Say whether DuckDB failed because it may use no more memory."""
    return isinstance(error, duckdb.OutOfMemoryException | MemoryError) or any(
        one in str(error) for one in _SHORT_OF_MEMORY
    )
