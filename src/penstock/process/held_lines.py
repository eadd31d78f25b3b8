"""The lines that handlers write with `logging` in a worker, held until their epoch is committed.

A transaction may run several times before its epoch is committed. So the log output of a worker is not written while a
handler runs: each line is kept with the record whose run has written it, goes with the results of that run to the
driver, and is written there once, after the commit. The lines of a run that was superseded, or of a process that ended,
are dropped.

Handlers of `logging` that belong to the application are its own: they see each record when it is written.
"""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from penstock.model.context import active
from penstock.process.logs import TextLines, extras_of, own_outputs, plain

LINES_MAX: Final = 1_000
"""The most lines that are kept of the run of one record, with its cascade."""

RUN_BYTES_MAX: Final = 1 << 18
"""The most bytes of the lines of one run, about."""

TASK_BYTES_MAX: Final = 1 << 24
"""The most bytes of the lines of all runs of a task, about."""

TEXT_MAX: Final = 16_384
"""The most characters of a line's event or traceback."""

WORKER: Final = "worker"
"""The role of the processes whose lines are held."""

_log = logging.getLogger(__name__)


class HeldLine(msgspec.Struct, frozen=True, array_like=True):
    """A line of a handler.

    Attributes:
        logger: The name of its logger.
        level: Its level, as a number.
        event: Its text, with the arguments.
        created: Its time, in seconds since the Unix epoch.
        pid: The process that has run the handler.
        request: The request id; that of the request which a workflow step answers.
        facts: Its `extra` values, as JSON has them.
        exception: The traceback; empty without an exception.
    """

    logger: str
    level: int
    event: str
    created: float
    pid: int
    request: str
    facts: dict[str, Any]
    exception: str = ""


_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(list[HeldLine])


class LineHolder(logging.Handler):
    """Keeps the lines of running handlers, and passes all others on.

    Attributes:
        wrote: Whether a handler has written a line since the last `take`.

    Args:
        output: Takes the lines that no handler writes.
    """

    def __init__(self, output: logging.Handler) -> None:
        super().__init__()
        self._output = output
        self.setFormatter(output.formatter)  # it takes the place of the output
        self.begin_task()

    def begin_task(self) -> None:
        """Forget the lines of a task that has failed, and begin the next task."""
        self._begin_run()
        self._task_size, self._is_full = 0, False

    def handle(self, record: logging.LogRecord) -> bool:
        """Keep the line of a handler. It takes no lock: a handler that is interrupted here would keep it."""
        if active() is None:
            return bool(self._output.handle(record))
        self.wrote = True
        if self._is_full or len(self._waiting) >= LINES_MAX or self._size >= RUN_BYTES_MAX:
            self._left_out += 1
            return False
        line = held(record)
        self._size += len(_encode(line))
        self._waiting.append(line)
        return True

    def take(self, failures: Mapping[str, str]) -> bytes:
        """Return the encoded lines of a run, and begin the next run; empty if it has none.

        Args:
            failures: The codes of the failures of the run's requests, by request id; their lines say so.
        """
        lines = [_marked(line, failures.get(line.request)) for line in self._waiting]
        if self._left_out and not self._is_full:
            lines.append(_cut(lines[-1].request, {"lines": self._left_out}))
        self._task_size += self._size
        if not self._is_full and self._task_size >= TASK_BYTES_MAX:  # said once for a task
            self._is_full = True
            lines.append(_cut(lines[-1].request, {"bytes": self._task_size}))
        self._begin_run()
        return _encode(lines) if lines else b""

    def _begin_run(self) -> None:
        self.wrote = False
        self._waiting: list[HeldLine] = []
        self._size = self._left_out = 0


def held(record: logging.LogRecord) -> HeldLine:
    """Return a record as a line without objects of the handler; a value that cannot be shown is named."""
    transaction = active()
    facts = _facts_of(record)
    request = facts.pop("request", None)  # which the handler may give
    if request is None and transaction is not None:
        request = str(transaction.request_id)
    exception = ""
    if record.exc_info:
        exception = str(_safely(partial(_traceback, record)))
    return HeldLine(
        _text(record.name),
        max(-sys.maxsize, min(record.levelno, sys.maxsize)),
        _text(str(_safely(record.getMessage))),
        record.created,
        os.getpid(),
        _text(str(request)),
        facts,
        _text(exception[-TEXT_MAX:]),
    )


def _facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the `extra` values of a record, as far as they have room in a run; the number of the others is one of them."""
    facts: dict[str, Any] = {}
    size = left_out = 0
    for name, given in extras_of(record).items():
        if size < RUN_BYTES_MAX:  # many values may be the same large text
            value = facts[_text(name)] = _safely(partial(_plain, given))
            size += len(_encode(value))
        else:
            left_out += 1
    return {**facts, "left out": left_out} if left_out else facts


def _text(text: str) -> str:
    """Return the beginning of a text; half of a character, which no encoding takes, is an escape."""
    return text[:TEXT_MAX].encode(errors="backslashreplace").decode()


def _safely(show: Callable[[], object]) -> Any:
    # The texts of values are user code. An interrupt is no `Exception`, and leaves the handler.
    try:
        return show()
    except Exception as error:  # noqa: BLE001 -- the line must not be lost, and must not fail the request
        return f"cannot be shown: {type(error).__name__}"


def _traceback(record: logging.LogRecord) -> str:
    assert record.exc_info, "the caller has looked"
    return logging.Formatter().formatException(record.exc_info)


def _plain(given: object) -> Any:
    """Return a value as JSON has it, or the beginning of its text if it is large."""
    value = plain(given)
    if isinstance(value, str):
        return _text(value) if len(value) <= TEXT_MAX else f"{_text(value)} …"
    encoded = _encode(value)  # a number that no 64 bits hold has no place in it
    return value if len(encoded) <= TEXT_MAX else f"{str(value)[:TEXT_MAX]} …"


def _marked(line: HeldLine, failure: str | None) -> HeldLine:
    return line if failure is None else replace(line, facts={**line.facts, "failed": failure})


def _cut(request: str, facts: dict[str, Any]) -> HeldLine:
    """Return the line that says that lines are missing: so many of a run, or all after so many bytes of a task."""
    warning, event = logging.WARNING, "further lines of handlers are not kept"
    return HeldLine(_log.name, warning, event, time.time(), os.getpid(), request, facts)


def hold_lines() -> LineHolder:
    """Hold the lines of handlers in the log output of this process, which `logs.configure` has set."""
    root = logging.getLogger()
    (output,) = own_outputs()
    root.removeHandler(output)
    holder = LineHolder(output)
    root.addHandler(holder)
    return holder


def line_holder() -> LineHolder:
    """Return the holder of this process; a new one, which never gets a line, if its lines are not held."""
    holders = [each for each in logging.getLogger().handlers if isinstance(each, LineHolder)]
    return holders[0] if holders else LineHolder(logging.NullHandler())


class _WorkerRecord(logging.LogRecord):
    """A line of another process."""

    role = WORKER


def write_held(runs: Iterable[bytes]) -> None:
    """Write the lines of committed runs to the log output of this process, or to standard error before `logs.configure`.

    An output that fails loses the line, as `logging` has it, and nothing else.
    """
    outputs: Sequence[logging.Handler] = own_outputs() or [_standard_error()]
    for run in runs:
        for line in _decoder.decode(run):
            record = _record_of(line)
            for output in outputs:
                if record.levelno >= output.level:
                    output.handle(record)


def _record_of(line: HeldLine) -> logging.LogRecord:
    record = _WorkerRecord(line.logger, line.level, "", 0, "%s", (line.event,), None)
    record.created, record.process = line.created, line.pid
    record.exc_text = line.exception or None
    vars(record).update({"request": line.request, **line.facts})
    return record


def _standard_error() -> logging.Handler:
    output = logging.StreamHandler(sys.stderr)
    output.setFormatter(TextLines())
    return output
