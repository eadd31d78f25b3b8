"""Calls of a user's function for many items, in a child process; for processes that must go on when the function ends its process, or does not end.

The child is a fork, so items and code need not be sent to it. It writes one result after another. If it stops to write,
or ends, the item after the last result is at fault: it gets no result but the way in which the child has ended, and another
child goes on behind it. A function that has failed in this way several times is given up: it does not run any more in this
process, because each of its items would cost the time limit.
"""

import io
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import IO, Final, NamedTuple, TypeAlias

import msgspec

from penstock.errors import PenstockError, StateUnavailable
from penstock.model.reply import failure_of
from penstock.model.request import Failure
from penstock.process.child_process import Bounds, start

CALL_S: Final = 3.0
"""The time that a function may take for one item."""

PATIENCE: Final = 3
"""The number of failures after which a function is given up."""

MEMORY_BYTES: Final = 512 << 20
"""The memory of the child beyond that of its parent."""

_CHILD_S: Final = 3_600.0
_FLUSH_S: Final = 0.2
_LENGTH_BYTES: Final = 4
_encode: Final = msgspec.msgpack.Encoder().encode


class _Result(msgspec.Struct, frozen=True, array_like=True):
    """The value of a call, or its error."""

    value: bytes = b""
    failure: Failure | None = None


_decode: Final = msgspec.msgpack.Decoder(_Result).decode

Outcome: TypeAlias = bytes | Failure | str
"""The value of a call, its error of Penstock, or the way in which it ended its process or did not return."""


class Called(NamedTuple):
    """The subject of a call.

    Attributes:
        function: The function, or a value that stands for it.
        label: Its name in messages.
        item: The item; equal items have equal outcomes.
    """

    function: Hashable
    label: str
    item: Hashable


class IsolatedCalls:
    """Makes calls in child processes.

    Args:
        call_s: The time that a function may take for one item, in seconds.
        patience: The number of failures after which a function is given up.
    """

    def __init__(self, call_s: float = CALL_S, patience: int = PATIENCE) -> None:
        self._call_s = call_s
        self._patience = patience
        self._failures: Counter[Hashable] = Counter()
        self._known: dict[tuple[Hashable, Hashable], str] = {}

    def outcomes(self, work: Callable[[int], bytes], calls: Sequence[Called]) -> list[Outcome]:
        """Make calls, and return the outcome of each.

        Args:
            work: Makes the call with an index; it runs in a child, and may raise errors of Penstock.
            calls: The calls.

        Raises:
            StateUnavailable: No process can be created.
        """
        outcomes: dict[int, Outcome] = {}
        waiting = list(range(len(calls)))
        is_careful = False
        while waiting:
            refused = {index: self._refusal(calls[index]) for index in waiting}
            outcomes.update((index, why) for index, why in refused.items() if why)
            waiting = [index for index, why in refused.items() if not why]
            results, end = self._in_child(work, calls, waiting, is_careful=is_careful)
            outcomes.update(zip(waiting, results, strict=False))
            waiting = waiting[len(results) :]
            if waiting and is_careful:
                self._blame(calls[waiting[0]], end)
            # From now on each result is sent at once, so that the end of the child tells the item at fault.
            is_careful = True
        return [outcomes[index] for index in range(len(calls))]

    def _refusal(self, call: Called) -> str:
        """Return why a call is not made; empty if it is."""
        if known := self._known.get((call.function, call.item)):
            return known
        if self._failures[call.function] >= self._patience:
            return (
                f"{call.label} was given up after {self._patience} rows for which it did not return"
            )
        return ""

    def _blame(self, call: Called, end: str) -> None:
        self._failures[call.function] += 1
        self._known[call.function, call.item] = f"{call.label} {end}"

    def _in_child(
        self,
        work: Callable[[int], bytes],
        calls: Sequence[Called],
        indexes: Sequence[int],
        *,
        is_careful: bool,
    ) -> tuple[list[Outcome], str]:
        """Make calls in a child, as far as it comes.

        Returns:
            The outcomes of the first calls, and the way in which the child has ended before the next one.
        """
        if not indexes:
            return [], ""
        flush_s = 0.0 if is_careful else _FLUSH_S
        bounds = Bounds(time.monotonic() + _CHILD_S, MEMORY_BYTES, 1)
        try:
            child = start(partial(_write_results, work, indexes, flush_s), bounds, nullcontext())
        except OSError as error:
            label = calls[indexes[0]].label
            raise StateUnavailable(f"no process can be created for {label}: {error}") from error
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


def _write_results(
    work: Callable[[int], bytes], indexes: Sequence[int], flush_s: float, pipe: IO[bytes]
) -> None:
    """Make calls, and write the results; this is the work of the child.

    Args:
        flush_s: The time after which results are sent.
        pipe: Where the results go.
    """
    sent = time.monotonic()
    for index in indexes:
        try:
            result = _Result(work(index))
        except PenstockError as error:
            result = _Result(failure=failure_of(error))
        data = _encode(result)
        pipe.write(len(data).to_bytes(_LENGTH_BYTES, "little") + data)
        if time.monotonic() - sent >= flush_s:
            pipe.flush()
            sent = time.monotonic()


def _results_in(told: bytes) -> Iterator[Outcome]:
    """Yield the results of a child up to the first damaged one."""
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
        yield result.value if result.failure is None else result.failure
