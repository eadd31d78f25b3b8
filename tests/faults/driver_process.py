"""A Spark runtime in a process of its own, which tests may kill, stop and damage.

Run as a program it is the driver: it writes its events in JSON lines on standard output, stops when
it is told to on standard input or when that ends, and leaves with 3 when the runtime refuses to
start and with 4 when it gives up. With the setting `standby` it says `ready` when it has warmed up, and starts when
no other driver runs.
"""

import contextlib
import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec
import psutil

from penstock.engine.execute import Limits
from penstock.errors import PenstockError
from penstock.process.config import Config
from penstock.runtime.spark.runtime import SparkRuntime
from tests.checkout import TOP
from tests.waiting import DEADLINE_S, wait_for

REFUSED, GAVE_UP = 3, 4
KILLED = -signal.SIGKILL
_DEATH = "Executor: Exception in task"


class DriverProcess:
    """A driver on a data directory.

    Args:
        environment: Variables that differ from those of this process.
        settings: Those of `Config`.
    """

    def __init__(
        self,
        spec: str,
        data: Path,
        *,
        environment: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.events: list[dict[str, Any]] = []
        self._output = data.with_name(f"{data.name}.stderr")
        arguments = {"cores": 2, "partitions": 2, **settings, "data": str(data)}
        with self._output.open("a+") as errors:
            errors.seek(0)
            self._dead_before = errors.read().count(_DEATH)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.driver_process", spec, json.dumps(arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=TOP,
                env={**os.environ, **(environment or {})},
            )
        self._below: dict[int, psutil.Process] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        """Wait until it has started, was refused, or died."""
        wait_for(lambda: self.has("started") or not self.alive, "the start of the driver")
        self.note_below()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing running, however the test ended."""
        self.kill()
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        self._reader.join(timeout=300)
        stdout.close()
        with contextlib.suppress(BrokenPipeError):
            stdin.close()

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def has(self, event: str) -> bool:
        """Whether it has said something."""
        return any(one["event"] == event for one in list(self.events))

    def last(self, event: str) -> dict[str, Any]:
        """Return its last event of a type; show its errors if there is none."""
        found = [one for one in self.events if one["event"] == event]
        assert found, f"no {event}:\n{self.errors()[-3_000:]}"
        return found[-1]

    def epochs(self) -> list[dict[str, Any]]:
        """Return the report of each epoch that it committed."""
        return [one for one in list(self.events) if one["event"] == "epoch"]

    def logs(self) -> list[dict[str, Any]]:
        """Return the structured warnings of the runtime: `message`, and its facts."""
        return [one for one in list(self.events) if one["event"] == "log"]

    def logged(self, message: str) -> list[dict[str, Any]]:
        """Return the warnings with a message."""
        return [one for one in self.logs() if one["message"] == message]

    def errors(self) -> str:
        """Return the standard error of every driver of the data directory."""
        return self._output.read_text()

    def stop(self) -> None:
        """Stop gracefully; returns when the process has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write("stop\n")
        self._process.stdin.flush()
        assert self.wait_end() == 0, self.errors()[-3_000:]

    def kill(self) -> None:
        """End it as by `kill -9`, with all that runs below it."""
        if self.alive:
            self.note_below()
            self._process.kill()
        self.wait_end()

    def wait_end(self, deadline_s: float = DEADLINE_S) -> int:
        """Return how it ended, when all that ran below it has ended too."""
        code = int(self._process.wait(deadline_s))
        self._reader.join(timeout=300)
        for one in self._below.values():
            wait_for(partial(_ended, one), f"the end of {one}", deadline_s)
        return code

    def wait_for_dead_workers(self, count: int) -> None:
        """Wait until so many workers have died in this process's life."""

        def dead() -> bool:
            assert self.alive, self.errors()[-3_000:]
            return self.errors().count(_DEATH) - self._dead_before >= count

        wait_for(dead, f"the death of {count} workers")

    def note_below(self) -> None:
        """Remember which processes run below, for the time when it is gone."""
        try:
            children = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return
        self._below |= {one.pid: one for one in children}

    def below(self, word: str) -> list[psutil.Process]:
        """Return the processes below it whose command line holds a word."""
        try:
            found = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [one for one in found if word in _command_line(one)]

    def workers(self) -> list[psutil.Process]:
        """Return the Python workers that execute tasks: children of Spark's daemons."""
        daemons = self.below("-m penstock.runtime.spark.daemon")
        pids = {one.pid for one in daemons}
        return [one for one in daemons if one.ppid() in pids]

    @property
    def process(self) -> psutil.Process:
        """The driver."""
        return psutil.Process(self.pid)

    @property
    def pid(self) -> int:
        """Process id of the driver."""
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.events.append(json.loads(line))


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def _ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _say(event: str, **facts: Any) -> None:
    """Write an event as one line; several threads do so, and `print` writes the line and its end apart."""
    sys.stdout.write(f"{json.dumps({'event': event, **facts}, default=str)}\n")
    sys.stdout.flush()


class _Told(logging.Handler):
    """Says each structured warning, with its facts."""

    _known = frozenset(logging.makeLogRecord({}).__dict__)

    def emit(self, record: logging.LogRecord) -> None:
        facts = {name: value for name, value in vars(record).items() if name not in self._known}
        _say("log", **{**facts, "message": record.getMessage()})


def _told_to_stop() -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], 0.05)
    return bool(ready)


def _takes_over(runtime: SparkRuntime) -> bool:
    runtime.warm_up()
    _say("ready")
    while not _told_to_stop():
        if runtime.claim():
            return True
    return False


def _drive(spec: str, arguments: dict[str, Any]) -> int:
    limits = Limits(**arguments.pop("limits", {}))
    standby = arguments.pop("standby", False)
    config = Config(data=Path(arguments.pop("data")), limits=limits, **arguments)
    logging.getLogger("penstock").addHandler(_Told())
    runtime = None
    try:
        runtime = SparkRuntime(spec, config)
        runtime.on_epoch.append(lambda report: _say("epoch", **msgspec.structs.asdict(report)))
        if standby and not _takes_over(runtime):
            runtime.stop()
            return 0
        runtime.start()
    except PenstockError as error:
        _say("refused", code=error.code, message=str(error))
        if runtime is not None:
            runtime.stop()
        return REFUSED
    _say("started")
    code = 0
    while not _told_to_stop():
        try:
            runtime.check()
        except PenstockError as error:
            _say("failed", code=error.code, message=str(error))
            code = GAVE_UP
            break
    runtime.stop()
    _say("stopped")
    return code


if __name__ == "__main__":
    sys.exit(_drive(sys.argv[1], json.loads(sys.argv[2])))
