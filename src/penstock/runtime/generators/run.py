"""The run of one generator: it gives the next atom of its source, and knows how far it has come.

The source is user code. It may raise any exception, and give anything; then the generator has failed, and everything
else goes on. This module appends nothing and reads no clock.
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum, unique
from itertools import islice
from typing import Any, Final

from penstock.base.annotations import signature_of
from penstock.engine.failure import failure_of
from penstock.errors import PenstockError, UserError
from penstock.model.streams.generator import FileSource, Generator
from penstock.runtime.generators.event_file import EventFile, open_events

EVENTS_MAX: Final = 1_000_000
"""The most events of an atom."""


@unique
class GeneratorStatus(StrEnum):
    """The status of a generator."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class GeneratorState:
    """The state of a generator, for people and programs.

    Attributes:
        status: Whether it is running, is finished or has failed.
        atoms: The number of its atoms that are on the stream, also those of earlier runs.
        events: The number of events that this run has appended.
        place: The file and the line that was read last; empty for another source.
        share: The part of the file that was read, from 0 to 1; None if it is not known.
        reason: Why it has failed; empty if it has not.
    """

    name: str
    stream: str
    status: GeneratorStatus
    atoms: int
    events: int
    place: str
    share: float | None
    reason: str


class GeneratorRun:
    """A generator between its first atom and its last one.

    Attributes:
        status: Whether it is running, is finished or has failed.
        atoms: The number of its atoms that are on the stream.
        due_us: The time of the next atom, in microseconds of the clock of the caller.
        cause: The exception of its source, if it has failed.
    """

    def __init__(self, generator: Generator[Any], atoms: int, now_us: int) -> None:
        self.generator = generator
        self.status = GeneratorStatus.RUNNING
        self.atoms = atoms  # the source begins again, so these are passed over
        self.due_us = now_us
        self.cause: BaseException | None = None
        self._events = 0
        self._reason = ""
        self._file: EventFile | None = None
        self._items: Iterator[Any] | None = None
        self._next: list[Any] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it can give atoms."""
        return self.status is GeneratorStatus.RUNNING

    @property
    def reason(self) -> str:
        """Why it has failed; empty if it has not."""
        return self._reason

    def state(self) -> GeneratorState:
        """Return the state."""
        file = self._file
        return GeneratorState(
            self.generator.name,
            self.generator.stream.name,
            self.status,
            self.atoms,
            self._events,
            file.place if file else "",
            file.share if file else None,
            self._reason,
        )

    def peek(self) -> list[Any] | None:
        """Return the next atom, which stays the next one until `advance`; None if it is finished or has failed."""
        if not self.is_running or self._next is not None:
            return self._next
        try:
            self._next = self._read()
        except BaseException as raised:
            self.fail(raised)
            if issubclass(type(raised), KeyboardInterrupt):
                raise
        else:
            if self._next is None:
                self.status = GeneratorStatus.FINISHED
        return self._next

    def advance(self) -> None:
        """Go on behind the next atom, which is on the stream now."""
        assert self._next is not None, "`peek` has given it"
        self.atoms += 1
        self._events += len(self._next)
        self.due_us += self.generator.pause_us(len(self._next))
        self._next = None

    def fail(self, raised: BaseException) -> None:
        """Stop with the exception of the source, or with the refusal of an atom."""
        self.status = GeneratorStatus.FAILED
        self.cause = raised
        self._next = None
        self._items = None
        if isinstance(raised, PenstockError):
            why = str(raised)
        else:
            failure = failure_of(raised, 0, 0)
            why = f"{failure.kind}: {failure.message}"
        self._reason = f"generator {self.generator.name}, atom {self.atoms}: {why}"

    def _read(self) -> list[Any] | None:
        """Read the next atom; None at the end of the source."""
        if self._items is None:
            self._items = self._open()
        size = self.generator.atom_size
        if size is not None:
            return list(islice(self._items, size)) or None
        for atom in self._items:
            if isinstance(atom, str | bytes):
                break
            events = list(islice(atom, EVENTS_MAX + 1))
            if len(events) > EVENTS_MAX:
                raise UserError(f"an atom has at most {EVENTS_MAX:,} events")
            return events
        else:
            return None
        raise UserError(
            f"the source gave {type(atom).__name__}, and an atom is a list of events; if the source has events, name "
            "atom_size="
        )

    def _open(self) -> Iterator[Any]:
        """Open the source behind the atoms that are on the stream."""
        generator = self.generator
        passed = self.atoms * (generator.atom_size or 1)
        source = generator.source
        if isinstance(source, FileSource):
            self._file = open_events(source, generator.stream.events)
            items = iter(self._file)
        elif callable(source):
            if _takes_number(source):
                return iter(source(passed))
            items = iter(source())
        else:
            items = iter(source)
        for _ in islice(items, passed):
            pass
        return items


def _takes_number(function: Any) -> bool:
    """Say whether a function has a parameter without a default."""
    try:
        parameters = signature_of(function).parameters.values()
    except (TypeError, ValueError):
        return False
    required = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(
        parameter.kind in required and parameter.default is parameter.empty
        for parameter in parameters
    )
