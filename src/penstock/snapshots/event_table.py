"""The table of a stream: one row for each event, in SQL, in Arrow and in Spark.

Its columns are the number of the atom, the place of the event in its atom (from 0), the event, the epoch, and the
time of the log record that caused the atom. The fields of an event that is a record are columns of their own, as the
attributes of an entity are; any other event is the column `event`. A field with the name of another column is
numbered: `epoch_2`.

The event of a row is NULL if it refers to a person who was erased. An atom without events has no row. As in `snapshots.table`, a value that does not fit needs the wide types, and
a value that no column can show is NULL, with a reason in the column `_unshown` of wide tables.
"""

from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.record import is_record
from penstock.errors import Diverged
from penstock.journal.atoms import decode_atom, opened_atom
from penstock.model.sealed_value import is_erased
from penstock.model.streams.stream import Stream
from penstock.snapshots.column import (
    Column,
    Reasons,
    Scalar,
    Structs,
    TooNarrow,
    distinct,
    quoted,
)
from penstock.snapshots.table import (
    UNFIT,
    UNSHOWN,
    Reason,
    Width,
    array_header,
    column_of,
    fitted,
    reason_text,
)

STORED: Final = ("epoch", "atom", "time_us", "count", "events")
"""The columns of the journal's `events` that the rows of a table are made of."""

_ATOM, _PLACE, _EPOCH, _TIME, _EVENT = "atom", "place", "epoch", "time", "event"
_NUMBER: Final = pa.int64()
_INSTANT: Final = pa.timestamp("us", "UTC")
_RAWS: Final = msgspec.msgpack.Decoder(list[list[msgspec.Raw]])


class EventTable:
    """The table of one stream.

    Attributes:
        wide: Whether its columns have the wide types.

    Args:
        wide: Whether its columns have the wide types.
        refuses: Whether an event of another type than the stream declares now is refused; if not, it is
            NULL, with a reason.
    """

    def __init__(self, stream: Stream[Any], *, wide: bool, refuses: bool = True) -> None:
        self.name = stream.name
        self.wide = wide
        self._refuses = refuses
        self._stream = stream
        event = column_of(stream.annotation, wide=wide)
        self._record = (
            event if isinstance(event, Structs) and is_record(stream.annotation) else None
        )
        fields = [(_EVENT, event)] if self._record is None else self._record.columns
        own = [_ATOM, _PLACE, _EPOCH, _TIME, *([UNSHOWN] if wide else [])]
        names = distinct([*own, *(name for name, _ in fields)])[len(own) :]
        self._fields = [(name, column) for name, (_, column) in zip(names, fields, strict=True)]
        self.columns: list[tuple[str, Column]] = [
            (_ATOM, Scalar("BIGINT", _NUMBER, int)),
            (_PLACE, Scalar("BIGINT", _NUMBER, int)),
            *self._fields,
            (_EPOCH, Scalar("BIGINT", _NUMBER, int)),
            (_TIME, Scalar("TIMESTAMP WITH TIME ZONE", _INSTANT, datetime)),
            *([(UNSHOWN, Reasons())] if wide else []),
        ]
        rounding = column_of(stream.annotation, wide=Width.ROUNDING)
        is_record_of_columns = self._record is not None and isinstance(rounding, Structs)
        self._rounding = [it for _, it in rounding.columns] if is_record_of_columns else [rounding]  # type: ignore[attr-defined]
        self._wire = event.wire
        self._decode = msgspec.msgpack.Decoder(list[list[event.wire]]).decode  # type: ignore[name-defined]

    @property
    def definition(self) -> str:
        """The columns in the syntax of CREATE TABLE."""
        return ", ".join(f"{quoted(name)} {column.sql}" for name, column in self.columns)

    def rows(self, atoms: pa.Table, cell_bytes_max: int | None = None) -> pa.Table:
        """Return a row for each event of atoms, in their order.

        Args:
            atoms: Rows of this stream with the columns `STORED`.
            cell_bytes_max: An event with more stored bytes is NULL, with a reason; None: no limit.

        Raises:
            TooNarrow: A value needs the wide types; never if the table is wide.
            Diverged: An event does not fit the type of the stream as it is declared now.
        """
        data, is_readable = self._opened(atoms["events"].to_pylist())
        counts = atoms["count"].to_numpy()
        try:
            if cell_bytes_max is not None and any(len(atom) > cell_bytes_max for atom in data):
                raise TooNarrow(f"an atom takes more than {cell_bytes_max} bytes")
            arrays = self._at_once(data)
        except MemoryError:
            raise
        except UNFIT as error:
            if not self.wide:
                raise TooNarrow(f"stream {self.name}: {error}") from error
            arrays = self._one_by_one(data, cell_bytes_max)
        if is_readable is not None:
            places = pa.array(np.cumsum(is_readable) - 1, mask=~is_readable)
            arrays = [pc.take(array, places) for array in arrays]
        total = int(counts.sum())
        if any(len(array) != total for array in arrays):
            raise self._diverged(f"its atoms have {len(arrays[0])} events instead of {total}")
        every = np.repeat(np.arange(len(counts)), counts)
        indexes = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        times = pc.cast(atoms["time_us"], _INSTANT)
        named = [
            pc.take(atoms["atom"], every),
            pa.array(indexes, _NUMBER),
            *arrays[: len(self._fields)],
            pc.take(atoms["epoch"], every),
            pc.take(times, every),
            *arrays[len(self._fields) :],
        ]
        return pa.Table.from_arrays(named, names=[name for name, _ in self.columns])

    def _opened(self, atoms: list[bytes]) -> tuple[list[bytes], npt.NDArray[np.bool_] | None]:
        """Return atoms with their readable events.

        Returns:
            The atoms, and for each of their events whether it is readable: bool, shape (events,). None if all are.
        """
        events = self._stream.events
        readable = [opened_atom(events, data) for data in atoms]
        # Streams without persons pay for nothing.
        if all(before is after for before, after in zip(atoms, readable, strict=True)):
            return atoms, None
        every = chain.from_iterable(map(decode_atom, atoms))
        return readable, np.array([not is_erased(events.keys, event) for event in every])

    def _at_once(self, atoms: Sequence[bytes]) -> list[pa.Array]:
        """Return the columns of the events; if the table is wide, the reasons are last."""
        try:
            decoded = self._decode(array_header(len(atoms)) + b"".join(atoms))
        except msgspec.MsgspecError as error:
            if not self._refuses:
                raise TooNarrow(str(error)) from error
            raise self._diverged(error) from error
        events = list(chain.from_iterable(decoded))
        arrays = [
            column.build(part)
            for (_, column), part in zip(self._fields, self._parts(events), strict=True)
        ]
        return [*arrays, pa.nulls(len(events), pa.string())] if self.wide else arrays

    def _one_by_one(self, atoms: Sequence[bytes], cell_bytes_max: int | None) -> list[pa.Array]:
        """Build the columns without the values that do not fit them."""
        raws = list(chain.from_iterable(_RAWS.decode(array_header(len(atoms)) + b"".join(atoms))))
        reasons: list[Reason] = [{} for _ in raws]
        events = [
            self._event(raw, reason, cell_bytes_max)
            for raw, reason in zip(raws, reasons, strict=True)
        ]
        arrays = []
        parts = self._parts(events)
        for (name, column), rounding, values in zip(
            self._fields, self._rounding, parts, strict=True
        ):
            arrays.append(fitted(name, column, rounding, values, reasons))
        return [*arrays, Reasons().build(reasons)]

    def _event(self, raw: msgspec.Raw, reason: Reason, cell_bytes_max: int | None) -> Any:
        """Decode one event; an event that is too large or nested too deeply is None."""
        if cell_bytes_max is not None and len(raw) > cell_bytes_max:
            reason[_EVENT] = f"it takes {len(raw)} bytes, too many for view.memory_mb"
            return None
        try:
            return msgspec.msgpack.decode(raw, type=self._wire)
        except RecursionError as error:
            reason[_EVENT] = reason_text(error)
            return None
        except msgspec.MsgspecError as error:
            if not self._refuses:
                reason[_EVENT] = f"it is of another type than the stream now: {reason_text(error)}"
                return None
            raise self._diverged(error) from error

    def _parts(self, events: Sequence[Any]) -> list[list[Any]]:
        """Return the values of each column."""
        return [list(events)] if self._record is None else self._record.parts(events)

    def _diverged(self, reason: object) -> Diverged:
        return Diverged(
            f"the journal holds an event of stream {self.name} that does not fit its type: {reason}; use the code that "
            "published it"
        )
