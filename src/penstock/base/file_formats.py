"""The formats of files that are imported and exported; clients know them without the packages that read them."""

from enum import StrEnum
from typing import Final

from penstock.base.http import CSV, NDJSON, PARQUET
from penstock.errors import RequestError


class FileFormat(StrEnum):
    """A format of files, for imports and exports."""

    PARQUET = "parquet"
    CSV = "csv"
    LINES = "jsonl"


MEDIA_TYPES: Final = {
    FileFormat.PARQUET: PARQUET,
    FileFormat.CSV: CSV,
    FileFormat.LINES: NDJSON,
}

_SUFFIXES: Final = {
    ".parquet": FileFormat.PARQUET,
    ".pq": FileFormat.PARQUET,
    ".csv": FileFormat.CSV,
    ".jsonl": FileFormat.LINES,
    ".ndjson": FileFormat.LINES,
}


def format_of(path: str, given: FileFormat | None) -> FileFormat:
    """Return the format of a file: the given one, or that of its suffix.

    Raises:
        RequestError: The suffix says nothing.
    """
    if given is not None:
        return given
    suffix = path[path.rfind(".") :].lower()
    if suffix not in _SUFFIXES:
        known = ", ".join(_SUFFIXES)
        raise RequestError(
            f"the name {path} does not tell the format of the file (known are {known}); name the format: parquet, csv or jsonl"
        )
    return _SUFFIXES[suffix]
