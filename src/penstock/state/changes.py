"""`SortedChanges`: changes as columns in key order, the form in which a store takes them fastest."""

from collections.abc import Iterable, Iterator
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import EntityKey
from penstock.state.api import Change


class SortedChanges:
    """Changes in key order (bytes of the UTF-8 text), one for each entity.

    Columns of a part become lists of bytes without a string, a hash or a pair for each row.

    Attributes:
        raw_keys: The UTF-8 text of each entity key.
        states: The encoded attributes of each entity; None if it was deleted.
    """

    def __init__(self, raw_keys: list[bytes], states: list[bytes | None]) -> None:
        self.raw_keys = raw_keys
        self.states = states

    @classmethod
    def of(cls, changes: Iterable[Change]) -> Self:
        """Sort changes; of several changes of an entity, the last one counts."""
        if isinstance(changes, cls):
            return changes
        newest = dict(changes)
        keys = sorted(newest)  # by code points, which is the order of the bytes, too
        return cls([key.encode() for key in keys], [newest[key] for key in keys])

    @classmethod
    def of_columns(cls, keys: pa.ChunkedArray, states: pa.ChunkedArray) -> Self:
        """Sort the rows of a table.

        Args:
            keys: Strings, each once.
        """
        raw = keys.cast(pa.binary())
        order = pc.sort_indices(raw)
        return cls(raw.take(order).to_pylist(), states.take(order).to_pylist())

    def __len__(self) -> int:
        return len(self.raw_keys)

    def __iter__(self) -> Iterator[Change]:
        for key, state in zip(self.raw_keys, self.states, strict=True):
            yield EntityKey(key.decode()), state
