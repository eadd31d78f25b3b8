"""Upcasts in a child process, for processes that must go on whatever a function with `@migrate` does.

The child is a fork, so rows and code need not be sent to it. It writes one result after another. If it stops to write,
or ends, the row after the last result is at fault: its result is a failure that names the class and the function, and
another child goes on behind it. A function that has failed in this way several times is given up: it does not run any
more in this process, because each of its rows would cost the time limit. The function of a later deployment is another one.
"""

import io
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import IO, Final, NamedTuple

import msgspec

from penstock.errors import Erased, MigrationFailed, PenstockError, StateUnavailable
from penstock.model.entity_type import EntityType
from penstock.model.reply import failure_of, raised_by
from penstock.model.request import Failure
from penstock.model.shape import tag_of
from penstock.model.upcast import Migrating
from penstock.model.versions.former_class import present_row
from penstock.model.versions.presenting import Presented, present_here, presenting_with
from penstock.process.child_process import Bounds, start

CALL_S: Final = 3.0
"""The time that the function may take for one row."""

PATIENCE: Final = 3
"""The number of failures after which a function is given up."""

_CHILD_S: Final = 3_600.0
_MEMORY_BYTES: Final = 512 << 20
_FLUSH_S: Final = 0.2
_LENGTH_BYTES: Final = 4
_encode: Final = msgspec.msgpack.Encoder().encode


class _Result(msgspec.Struct, frozen=True, array_like=True):
    """A row, or the error."""

    row: bytes = b""
    failure: Failure | None = None


_decode: Final = msgspec.msgpack.Decoder(_Result).decode


class _Functions(NamedTuple):
    """The functions that the upcast of a row calls, and their name in messages."""

    label: str
    functions: tuple[Migrating | None, ...]


class IsolatedUpcasts:
    """Upcasts rows; those that need user code in a child process."""

    def __init__(self, call_s: float = CALL_S, patience: int = PATIENCE) -> None:
        """Remember no failure.

        Args:
            call_s: The time that a function may take for one row, in seconds.
            patience: The number of failures after which a function is given up.
        """
        self._call_s = call_s
        self._patience = patience
        self._failures: Counter[_Functions] = Counter()
        self._known: dict[tuple[_Functions, str, bytes], str] = {}

    def __call__(
        self, entity_type: EntityType, texts: Sequence[str], states: Sequence[bytes]
    ) -> list[Presented]:
        """Upcast rows, as `present_here` does."""
        rows: dict[int, Presented] = {}
        called = [_functions(entity_type, state) for state in states]
        by_user = {place: functions for place, functions in enumerate(called) if functions}
        waiting = list(by_user)
        direct = [place for place, functions in enumerate(called) if not functions]
        made = present_here(entity_type, *_chosen(direct, texts, states))
        rows.update(zip(direct, made, strict=True))
        is_careful = False
        while waiting:
            known = {
                place: self._refusal(by_user[place], texts[place], states[place])
                for place in waiting
            }
            rows.update((place, MigrationFailed(why)) for place, why in known.items() if why)
            waiting = [place for place, why in known.items() if not why]
            results, end = self._in_child(
                entity_type, *_chosen(waiting, texts, states), is_careful=is_careful
            )
            rows.update(zip(waiting, results, strict=False))
            waiting = waiting[len(results) :]
            if waiting and is_careful:
                self._blame(by_user[waiting[0]], texts[waiting[0]], states[waiting[0]], end)
            is_careful = True
        return [rows[place] for place in range(len(states))]

    def _refusal(self, functions: _Functions, text: str, state: bytes) -> str:
        """Return why a row is not upcast; empty if it is."""
        if known := self._known.get((functions, text, state)):
            return known
        if self._failures[functions] >= self._patience:
            return f"{functions.label} was given up after {self._patience} rows for which it did not return"
        return ""

    def _blame(self, functions: _Functions, text: str, state: bytes, end: str) -> None:
        self._failures[functions] += 1
        self._known[functions, text, state] = f"{functions.label} {end}"

    def _in_child(
        self,
        entity_type: EntityType,
        texts: Sequence[str],
        states: Sequence[bytes],
        *,
        is_careful: bool,
    ) -> tuple[list[Presented], str]:
        """Upcast rows in a child, as far as it comes.

        Args:
            texts: The texts of the keys.
            states: The rows as they are stored.
            is_careful: Whether each result is sent at once, so that the end of the child tells the row at fault.

        Returns:
            The results of the first rows, and the way in which the child has ended before the next row.
        """
        if not states:
            return [], ""
        flush_s = 0.0 if is_careful else _FLUSH_S
        work = partial(_write_results, entity_type, texts, states, flush_s)
        bounds = Bounds(time.monotonic() + _CHILD_S, _MEMORY_BYTES, 1)
        try:
            child = start(work, bounds, nullcontext())
        except OSError as error:
            raise StateUnavailable(f"no process can be created for @migrate: {error}") from error
        told = io.BytesIO()
        end = f"did not return within {self._call_s:g} s"
        try:
            size = -1
            while told.tell() > size:
                size = told.tell()
                until = time.monotonic() + self._call_s
                if child.copy(told, until):  # a function may close the pipe, and go on
                    if child.has_ended(until):
                        end = f"ended its process with exit code {child.joined()}"
                    break
        finally:
            child.end()
        return list(_results_in(told.getvalue())), end


@contextmanager
def isolated_upcasts() -> Iterator[None]:
    """Let tables upcast rows in child processes while the block runs."""
    with presenting_with(IsolatedUpcasts()):
        yield


def _chosen(
    places: Sequence[int], texts: Sequence[str], states: Sequence[bytes]
) -> tuple[list[str], list[bytes]]:
    return [texts[place] for place in places], [states[place] for place in places]


def _functions(entity_type: EntityType, state: bytes) -> _Functions | None:
    """Return the functions that the upcast of a row calls; None without any."""
    if state.startswith(entity_type.row_head) or not entity_type.migrations:
        return None
    tag, later = tag_of(state), []
    for version in reversed(entity_type.versions):
        if version.shape.tag == tag:
            break
        if version.migrated:
            later.append(version.number)
    if not later:
        return None
    later.reverse()
    numbers = ", ".join(f"since={number}" for number in later)
    functions = tuple(map(entity_type.migrations.get, later))
    return _Functions(f"{entity_type.name}: @migrate(…, {numbers})", functions)


def _write_results(
    entity_type: EntityType,
    texts: Sequence[str],
    states: Sequence[bytes],
    flush_s: float,
    pipe: IO[bytes],
) -> None:
    """Upcast rows, and write the results; this is the work of the child.

    Args:
        texts: The texts of the keys.
        states: The rows as they are stored.
        flush_s: The time after which results are sent.
        pipe: Where the results go.
    """
    sent = time.monotonic()
    for text, state in zip(texts, states, strict=True):
        try:
            result = _Result(present_row(entity_type, text, state))
        except PenstockError as error:
            result = _Result(failure=failure_of(error))
        data = _encode(result)
        pipe.write(len(data).to_bytes(_LENGTH_BYTES, "little") + data)
        if time.monotonic() - sent >= flush_s:
            pipe.flush()
            sent = time.monotonic()


def _results_in(told: bytes) -> Iterator[Presented]:
    """Yield the results of a child up to the first damaged one; an error that is not of a single row is raised."""
    place = 0
    while place + _LENGTH_BYTES <= len(told):
        begin = place + _LENGTH_BYTES
        place = begin + int.from_bytes(told[place:begin], "little")
        if place > len(told):
            return
        try:
            result = _decode(told[begin:place])
        except msgspec.MsgspecError:  # a function has written to the pipe
            return
        if result.failure is None:
            yield result.row
            continue
        error = raised_by(result.failure)
        if not isinstance(error, MigrationFailed | Erased):
            raise error
        yield error
