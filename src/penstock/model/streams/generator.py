"""Generators: sources of atoms, such as a range of numbers, a function or a file.

A generator belongs to an application. Its n-th atom is the append with the id `{application}/{generator}/{n}`, so an
atom is on the stream once, also after a restart. The generator goes on behind the atoms that are there.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, Final, Generic, Protocol, TypeVar, overload

from penstock.model.declaration import caller_place
from penstock.model.streams.interface import StreamInterface
from penstock.model.streams.stream import Stream, check_source

T = TypeVar("T")

FORMS: Final = {
    ".jsonl": "json lines",
    ".ndjson": "json lines",
    ".csv": "csv",
    ".parquet": "parquet",
}
"""The form of a file of events, by the end of its name."""

_MICROSECOND: Final = timedelta(microseconds=1)


class FilePath(Protocol):
    """A path, such as `pathlib.Path`."""

    def __fspath__(self) -> str:
        """Return the path as text."""


class FileSource:
    """A file of events.

    Attributes:
        path: The path; a relative path begins at the working directory of the process that reads the file.
    """

    def __init__(self, path: str | FilePath) -> None:
        self.path = path if isinstance(path, str) else path.__fspath__()

    def __repr__(self) -> str:
        return f"from_file({self.path!r})"

    @property
    def form(self) -> str | None:
        """The form, by the end of the name; None for an unknown end."""
        return next((form for end, form in FORMS.items() if self.path.lower().endswith(end)), None)


def from_file(path: str | FilePath) -> FileSource:
    """Name a file whose rows are the events of a generator.

    The end of the name says the form: `.jsonl` or `.ndjson` has a JSON value in each line, `.csv` has a header with
    the names of the fields, and `.parquet` has a column for each field. Each row is converted to the type of the
    stream. A row that does not fit stops the generator, with a message that names the line and the field.
    """
    return FileSource(path)


class Generator(Generic[T]):
    """A source of atoms for one stream; a member of an `App`.

    Attributes:
        name: The name, unique among the generators of an application.
        stream: The stream that takes the atoms.
        source: The events or atoms, a function that returns them, or a file.
        atom_size: The number of events of an atom; None if the source has whole atoms.
        every: The time from an atom to the next one; None without.
        per_second: The most events in a second; None without.
        where: `file:line` of the declaration.
    """

    def __init__(self, name: str, stream: Stream[T], source: Any, pace: "Pace", where: str) -> None:
        self.name = name
        self.stream = stream
        self.source = source
        self.atom_size: int | None = pace.atom_size
        self.every: timedelta | None = pace.every
        self.per_second: float | None = pace.per_second
        self.where = where

    def __repr__(self) -> str:
        return f"<Generator {self.name}>"

    def pause_us(self, events: int) -> int:
        """Return the microseconds from an atom of so many events to the next atom."""
        if self.every is not None:
            return self.every // _MICROSECOND
        if self.per_second is not None:
            return round(events * 1_000_000 / self.per_second)
        return 0

    def complaints(self) -> list[str]:
        """Return the mistakes of the declaration, each without its place."""
        size: object = self.atom_size  # not checked yet
        every: object = self.every
        per_second: Any = self.per_second
        source = self.source
        mistakes = []
        is_elsewhere = isinstance(self.stream, StreamInterface) and not self.stream.is_bound
        if not (self.stream.is_open or is_elsewhere):
            mistakes.append(f"{self.stream!r} takes no appends; name a stream(…)")
        if size is not None and (type(size) is not int or size < 1):
            mistakes.append(
                f"atom_size is the number of events of an atom, 1 or more, not {size!r}"
            )
        if every is not None and per_second is not None:
            mistakes.append("name every= or per_second=, and not both")
        if every is not None and (not isinstance(every, timedelta) or every < _MICROSECOND):
            mistakes.append(
                f"every is the time between atoms, as in timedelta(seconds=1), not {every!r}"
            )
        if per_second is not None and not (_is_number(per_second) and 0 < per_second < _MOST):
            mistakes.append(f"per_second is a number of events greater than 0, not {per_second!r}")
        return [*mistakes, *_source_complaints(source, size)]


_MOST: Final = 1e9


class Pace:
    """The size of the atoms of a generator, and the time between them."""

    __slots__ = ("atom_size", "every", "per_second")

    def __init__(self, atom_size: Any, every: Any, per_second: Any) -> None:
        self.atom_size = atom_size
        self.every = every
        self.per_second = per_second


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _source_complaints(source: object, size: object) -> list[str]:
    if isinstance(source, FileSource):
        return _file_complaints(source, size)
    if isinstance(source, str | bytes) or not (callable(source) or isinstance(source, Iterable)):
        return [
            f"its source is {source!r}; name a list, a function that returns events, or from_file(path)"
        ]
    if isinstance(source, Iterator):
        return [
            f"its source is {type(source).__name__}, which can be read once only, and a restart reads it again; name a "
            "function that returns it"
        ]
    return []


def _file_complaints(source: FileSource, size: object) -> list[str]:
    if source.form is None:
        return [f"{source!r}: the name of a file of events ends with {', '.join(FORMS)}"]
    if size is None:
        return [
            f"{source!r} has events and no atoms; name atom_size=, the number of events of an atom"
        ]
    return []


@overload
def generator(
    name: str,
    stream: Stream[T],
    source: Iterable[T] | Callable[..., Iterable[T]] | FileSource,
    /,
    *,
    atom_size: int,
    every: timedelta | None = None,
    per_second: float | None = None,
) -> Generator[T]: ...
@overload
def generator(
    name: str,
    stream: Stream[T],
    source: Iterable[Iterable[T]] | Callable[..., Iterable[Iterable[T]]],
    /,
    *,
    every: timedelta | None = None,
    per_second: float | None = None,
) -> Generator[T]: ...
def generator(
    name: str,
    stream: Stream[Any],
    source: Any,
    /,
    *,
    atom_size: int | None = None,
    every: timedelta | None = None,
    per_second: float | None = None,
) -> Generator[Any]:
    """Append the events of a source to a stream.

    The source must give the same events each time. A restart goes on behind the atoms that are on the stream: it
    reads the source from the beginning, and passes over the events of these atoms. A function with a parameter gets
    the number of these events, or atoms, and returns the events behind them.

    Args:
        name: Letters, digits, `-` and `_`.
        stream: A stream that `stream(…)` declares, here or, with `registry.stream`, in another application.
        source: The events, a function that returns them, or `from_file(path)`. It may have no end. Without
            `atom_size`, it has atoms: lists of events.
        atom_size: The number of events of an atom; the last atom may be shorter.
        every: The time from an atom to the next one.
        per_second: The most events in a second. An atom is never divided for it.

    Raises:
        DefinitionError: `stream` has another type. `App` reports all other mistakes.
    """
    where = caller_place()
    check_source(stream, f"generator {name}", where)
    return Generator(name, stream, source, Pace(atom_size, every, per_second), where)
