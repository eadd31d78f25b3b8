"""The search for a text in all files of a folder, also in the values of Parquet files."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq


def texts_in(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield the bytes of each file, and the values in each Parquet file."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            yield path, content
            if content.startswith(b"PAR1"):
                with path.open("rb") as file:
                    yield path, repr(pq.read_table(file).to_pylist()).encode()


def readable_in(folder: Path, text: str) -> list[Path]:
    """Return the files that show a text."""
    return [path for path, content in texts_in(folder) if text.encode() in content]
