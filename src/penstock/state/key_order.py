"""Rows in the order of their keys, from runs that are each too large to be kept in memory together.

Each run is sorted and written to a temporary file, which a killed process leaves behind without a name. Then the rows are read range
by range: the keys of the runs are divided so that a range has about as many rows as one run.
"""

import tempfile
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import StateUnavailable
from penstock.state.lmdb import SortedChanges

RUN: Final = pa.schema({"key": pa.binary(), "state": pa.binary()})
"""The columns of a run; each key is once in all runs."""

_PIECES: Final = 64
"""The keys of a run among which the borders of the ranges are chosen."""


def in_key_order(runs: Iterable[pa.Table], folder: Path | None) -> Iterator[SortedChanges]:
    """Yield the rows of all runs in the order of their keys, in batches of about the size of a run.

    Args:
        runs: Tables of `RUN`, without order.
        folder: The folder of the temporary file; None for the usual one.

    Raises:
        StateUnavailable: The disk is full or fails.
    """
    with _disk(folder):
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 -- closed below
    with file:
        writer = pa.ipc.new_file(file, RUN)
        count = 0
        for run in runs:
            ordered = run.take(pc.sort_indices(run["key"])).combine_chunks()
            for batch in ordered.to_batches():
                with _disk(folder):
                    writer.write_batch(batch)
                count += 1
        with _disk(folder):
            writer.close()
            file.flush()
        with pa.memory_map(f"/dev/fd/{file.fileno()}") as mapped:
            reader = pa.ipc.open_file(mapped)
            yield from _merged([reader.get_batch(number) for number in range(count)])


def _merged(runs: Sequence[pa.RecordBatch]) -> Iterator[SortedChanges]:
    sample = sorted(
        run["key"][place].as_py()
        for run in runs
        for place in range(0, run.num_rows, max(1, run.num_rows // _PIECES))
    )
    borders = [b"", *sample[:: max(1, len(sample) // len(runs))][1:]] if runs else []
    starts = [[_place(run["key"], border) for border in borders] + [run.num_rows] for run in runs]
    for number in range(len(borders)):
        parts = [
            run.slice(places[number], places[number + 1] - places[number])
            for run, places in zip(runs, starts, strict=True)
        ]
        rows = pa.Table.from_batches(parts, RUN)
        yield SortedChanges.of_columns(rows["key"], rows["state"])


def _place(keys: pa.Array, border: bytes) -> int:
    """Return the place of the first key that is not before a border."""
    return bisect_left(range(len(keys)), border, key=lambda place: keys[place].as_py())


@contextmanager
def _disk(folder: Path | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = (
            f"the rows of a snapshot cannot be sorted in {folder or tempfile.gettempdir()}: {error}"
        )
        raise StateUnavailable(message) from error
