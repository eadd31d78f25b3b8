"""The output of Java and of its Python workers: lines on standard error, and traces in a file.

Java and PySpark write a trace of many lines for events that are normal, such as a worker that ends
while it is idle. `JavaOutput` writes all of the output to `run/java.log` in the data directory. On
standard error, a trace is one line that names this file; while Java is stopped, it is no line at all, and
neither is the end of an idle worker.
All other lines appear unchanged, such as those that a handler prints.
"""

import os
import re
import select
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

from penstock.files.layout import RUN

FILE_NAME: Final = "java.log"
BYTES_MAX: Final = 8 << 20
"""The size at which the file becomes `java.log.1`, whose predecessor is removed."""

QUIET_S: Final = 0.2
"""The time without output after which a trace is complete."""

_BLOCK: Final = 64 << 10
_PYTHON: Final = "Traceback (most recent call last):"
_FLUSH: Final = "PySpark daemon failed to flush the output to the worker process:"
"""PySpark's line before some traces of a worker whose connection has ended."""

_FRAME: Final = re.compile(r'\s+File "')
_DAEMON: Final = re.compile(r'\s+File ".*pyspark/daemon\.py", line \d+, in \w+$')
"""A frame of the process that forks workers. Without a head above it, it belongs to a trace that was written beside another one."""

_LAST_FLUSH: Final = re.compile(r'\s+File ".*pyspark/daemon\.py", line \d+, in worker$')
"""The innermost frame of a worker whose connection has ended: usually Spark has ended an idle worker."""

_CHAINED: Final = ("During handling of the above exception", "The above exception was the direct")
_JAVA: Final = re.compile(r"\s+at [\w.$/<>@-]+\(.*\)$")
_JAVA_MORE: Final = re.compile(r"\s+\.\.\. \d+ |\s*(Caused by|Suppressed): ")
_THROWN: Final = re.compile(r"([a-z][\w$]*\.)+[A-Z]\w*(Exception|Error)\b")


class TraceFolder:
    """Makes one line of each trace; it keeps the newest line until it knows the next one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: str | None = None
        self._thrown: str | None = None  # below the kept line; a trace of Java may follow it
        self._folded = False
        self._in_python = False  # between "Traceback" and the line with the error
        self._at_flush = False  # the innermost frame of the trace is a worker's last flush
        self._in_message = False  # a trace of Python in the message of an exception of Java
        self.is_ending = False  # a stop interrupts workers: their traces tell nothing

    def take(self, line: str) -> list[str]:
        """Take a line; return the lines that are complete now."""
        if line == _FLUSH:
            return self.flush()
        if line == _PYTHON or (_DAEMON.match(line) and not self._in_python):
            ready = [] if self._folded and self._kept is None else self.flush()
            self._in_python = self._folded = True
            self._take_of_python(line)
            return ready
        if self._in_python:
            self._take_of_python(line)
            return []
        if self._belongs_to_kept(line):
            return []
        ready = self.flush()
        self._kept = line
        return ready

    def _take_of_python(self, line: str) -> None:
        """Take a line of a trace of Python; keep the error in its last line."""
        if _FRAME.match(line):
            self._at_flush = _LAST_FLUSH.match(line) is not None
        elif line and not line[0].isspace() and line != _PYTHON:  # the error itself
            is_normal = self._at_flush and line.startswith("BrokenPipeError")
            self._kept = None if is_normal else line
            self._in_python = self._at_flush = False

    def _belongs_to_kept(self, line: str) -> bool:
        """Say whether a line continues the trace of the line that is kept."""
        if self._in_message:
            if _JAVA.match(line):
                self._in_message, self._folded, self._thrown = False, True, None
        elif self._kept is not None and _THROWN.search(line) and line.endswith(_PYTHON):
            self._in_message = True
        elif self._folded and line.startswith(_CHAINED):
            self._kept = None  # the error that follows is the one that matters
        elif self._kept is not None and _JAVA.match(line):
            self._folded, self._thrown = True, None
        elif self._kept is not None and not self._folded and _THROWN.match(line):
            if self._thrown is not None:
                return False
            self._thrown = line
        else:
            return self._folded and (not line.strip() or _JAVA_MORE.match(line) is not None)
        return True

    def pause(self) -> list[str]:
        """Return the lines that were kept when no further line has come for a while; a trace of Python has an end of its own."""
        return [] if self._in_python else self.flush()

    def flush(self) -> list[str]:
        """Return the lines that were kept."""
        kept = [line for line in (self._kept, self._thrown) if line is not None]
        folded, self._folded, self._in_python = self._folded, False, False
        self._kept = self._thrown = None
        self._in_message = False
        if folded and self.is_ending:
            return []
        return [f"{line} (all of it is in {self._path})" for line in kept] if folded else kept


_MAIN_ENDED: Final = 'Exception in thread "main" '


class JavaOutput:
    """Passes the output of a process on, in a thread that ends with the output.

    Attributes:
        failure: The exception that has ended the main thread, in one line; empty before. Java itself goes on then.

    Args:
        process: The process; its standard output is a pipe.
        stream: The file for the lines; None stands for standard error.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], data: Path, stream: TextIO | None = None
    ) -> None:
        assert process.stdout is not None
        self.path = data / RUN / FILE_NAME
        self.failure = ""
        self._source = process.stdout
        self._stream = stream or sys.stderr
        self._folder = TraceFolder(self.path)
        self._thread = threading.Thread(
            target=self._pass_on, name="penstock-java-output", daemon=True
        )
        self._thread.start()

    def expect_end(self) -> None:
        """Keep traces in the file only, from now on: the process is being stopped."""
        self._folder.is_ending = True

    def close(self) -> None:
        """Wait for the rest of the output; workers that Java left behind may keep it open."""
        self._thread.join(QUIET_S * 5)

    def _pass_on(self) -> None:
        """Read until the end; no error of the file or of the stream may end it, or Java would block."""
        rest = b""
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        while True:
            if not poll.poll(QUIET_S * 1_000):
                self._show(self._folder.pause())
                continue
            block = os.read(self._source.fileno(), _BLOCK)
            self._keep(block)
            *lines, rest = (rest + block).split(b"\n")
            if not block:
                lines, rest = [rest] if rest else [], b""
            for line in lines:
                text = line.decode(errors="replace")
                self.failure = self.failure or text.partition(_MAIN_ENDED)[2]
                self._show(self._folder.take(text))
            if not block:
                self._show(self._folder.flush())
                self._source.close()
                return
            if len(rest) > _BLOCK:  # a line without an end
                self._show(self._folder.take(rest.decode(errors="replace")))
                rest = b""

    def _show(self, lines: list[str]) -> None:
        for line in lines:
            with suppress(OSError, ValueError):
                self._stream.write(f"{line}\n")
                self._stream.flush()

    def _keep(self, block: bytes) -> None:
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(block)
                size = file.tell()
            if size >= BYTES_MAX:
                self.path.replace(self.path.with_name(f"{FILE_NAME}.1"))
