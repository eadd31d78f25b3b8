"""Log output of a process: one line for each event, for people or for programs.

Python's `logging` stays the way to say something: `_log.warning("it is delayed", extra={"cause":
…})`. Varying values belong into `extra`, so that events of one kind have one text. An event is one
line with any text in it (except a traceback in the form for people, whose lines are indented), so
that a quoted text cannot forge an event. No event is lost because one of its values cannot be
shown.
"""

import io
import json
import logging
import math
import os
import sys
import threading
import unicodedata
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO

FORMS: Final = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error")

QUIET: Final = {
    "py4j": logging.CRITICAL,  # repeats at length the errors that it raises
    "pyspark": logging.ERROR,
    "httpcore": logging.WARNING,
    "httpx": logging.WARNING,
    "opentelemetry": logging.WARNING,
    "urllib3": logging.WARNING,
}
"""Libraries that log too much, and the lowest level that is written of each."""

_STANDARD: Final = {*vars(logging.makeLogRecord({})), "message", "asctime"}


def configure(role: str, form: str, level: str, stream: TextIO | None = None) -> None:
    """Set the log output of this process; a second call replaces the first.

    Args:
        form: One of `FORMS`.
        level: One of `LEVELS`; events below it are not written.
        stream: The stream to write to; standard error if None.
    """
    root = logging.getLogger()
    for handler in own_outputs():
        root.removeHandler(handler)
    output = logging.StreamHandler(stream or sys.stderr)
    output.addFilter(_is_wanted)
    output.addFilter(_with_request)
    output.setFormatter(JsonLines(role) if form == "json" else TextLines())
    root.addHandler(output)
    root.setLevel(level.upper())
    for name, least in QUIET.items():
        logging.getLogger(name).setLevel(max(least, root.level))
    logging.captureWarnings(capture=True)


def own_outputs() -> list[logging.Handler]:
    """Return the log output that `configure` has set, as a list; empty before it has."""
    return [each for each in logging.getLogger().handlers if isinstance(each.formatter, Lines)]


def configure_service(role: str, form: str, level: str) -> None:
    """Do the same for a process that serves, and go on when standard output or standard error cannot be written."""
    out, err = sys.__stdout__, sys.__stderr__
    if out is not None and sys.stdout is out:  # and not the stream of a caller
        sys.stdout = LossyStream(out.fileno())
    if err is not None and sys.stderr is err:
        sys.stderr = LossyStream(err.fileno())
    configure(role, form, level)


class LossyStream(io.TextIOBase):
    """Writes text to a descriptor; text that cannot be written is dropped and counted.

    The log output may be on the disk that is full, or its reader may have ended. A service must not end for that. The first
    write that succeeds again says how many lines are missing.
    """

    def __init__(self, descriptor: int) -> None:
        """Write to a descriptor, which stays the caller's."""
        self._descriptor = descriptor
        self._lock = threading.RLock()  # a signal may interrupt a write of the same thread
        self.dropped = 0

    encoding = "utf-8"

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Say whether the descriptor is a terminal."""
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        """Say that text can be written."""
        return True

    def write(self, text: str) -> int:
        """Write text, or count the lines that are dropped."""
        data = text.encode(self.encoding, "backslashreplace")
        with self._lock:
            if self.dropped and self._sent(b"%d lines of output were dropped\n" % self.dropped):
                self.dropped = 0
            if self.dropped or not self._sent(data):
                self.dropped += text.count("\n")
        return len(text)

    def _sent(self, data: bytes) -> bool:
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            return False
        return True


def _is_wanted(record: logging.LogRecord) -> bool:
    """Say whether an event is written: py4j logs some errors that it raises in the name of the program."""
    return record.name != "root" or Path(record.pathname).parent.name != "py4j"


def _with_request(record: logging.LogRecord) -> bool:
    """Let an event that a handler writes name its request."""
    from penstock.model.context import active  # noqa: PLC0415 -- a mistake in a command line needs no application

    transaction = active()
    if transaction is not None and not hasattr(record, "request"):  # which the handler may give
        record.request = str(transaction.request_id)
    return True


def mute_handlers(*, muted: bool) -> None:
    """Drop the lines of handlers that run again from the log output of this process; or end this."""
    last = [logging.lastResort] if logging.lastResort else []  # without any output
    for output in [*logging.getLogger().handlers, *last]:
        (output.addFilter if muted else output.removeFilter)(_is_outside)


def _is_outside(_record: logging.LogRecord) -> bool:
    """Say whether no handler of the application writes an event."""
    from penstock.model.context import active  # noqa: PLC0415 -- like `_with_request`

    return active() is None


class Lines(logging.Formatter):
    """Turns events into lines."""

    def _traceback(self, record: logging.LogRecord) -> str:
        """Return the traceback of an event; empty without an exception. A line of another process has its text alone."""
        return self.formatException(record.exc_info) if record.exc_info else record.exc_text or ""


class TextLines(Lines):
    """For people: time, level, logger, event, and its values as `name=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return an event as one line, and a traceback below it."""
        facts = "".join(f" {name}={_shown(value)}" for name, value in extras_of(record).items())
        event = printable(record.getMessage())
        line = f"{_time(record)} {record.levelname.lower()} {record.name}: {event}{facts}"
        traceback = self._traceback(record)
        return "\n".join([line, *(f"  {printable(row)}" for row in traceback.splitlines())])


class JsonLines(Lines):
    """For programs: one JSON object, ASCII only.

    It has `time` (RFC 3339, UTC), `level`, `logger`, `role`, `pid` and `event`, `exception` if
    there is an exception, and the values of the event by their names; `_` follows a taken name.
    """

    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        """Return an event as one line."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "role": getattr(type(record), "role", self._role),
            "pid": record.process,
            "event": record.getMessage(),
        }
        if traceback := self._traceback(record):
            line["exception"] = traceback
        for name, value in extras_of(record).items():
            line[f"{name}_" if name in line else name] = plain(value)
        return json.dumps(line)


def _time(record: logging.LogRecord) -> str:
    told = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return told.replace("+00:00", "Z")


def extras_of(record: logging.LogRecord) -> dict[str, object]:
    """Return the values of an event that stand in `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def plain(value: object) -> Any:
    """Return a value as JSON has it; a value that JSON does not have becomes text."""
    match value:
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case dict():
            return {str(name): plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return str(value)


def _shown(value: object) -> str:
    text = printable(str(value))
    return text if text and " " not in text and '"' not in text else json.dumps(text)


def printable(text: str, *, lines: bool = False) -> str:
    """Return a text with control characters escaped, so that it controls no terminal; `lines` keeps its line ends."""
    if text.isprintable():
        return text
    return "".join(
        char
        if char.isprintable() or unicodedata.category(char) == "Zs" or (lines and char == "\n")
        else char.encode("unicode_escape").decode()
        for char in text
    )
