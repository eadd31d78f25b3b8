"""Programs of tests in processes that are forked from a process that has imported Penstock.

A start of Python with Penstock's libraries takes a second of a processor, and a fork takes some
milliseconds. A test of a start, of a command, or of a conversation needs a process of its own.
"""

import multiprocessing
import os
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final

PRELOADED: Final = [
    "hypothesis",
    "penstock.history.backup",
    "penstock.history.restore",
    "penstock.retention.maintenance",
    "penstock.snapshots.snapshot_writer",
    "pytest",
    "tests.differential.inline",
]
"""Modules that the programs import; a module that is missing here costs time, and nothing else."""

_PROCESSES: Final = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(PRELOADED)


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code, negative for a signal, and its standard error."""

    returncode: int
    stderr: str


def run(program: str, *arguments: object) -> Ended:
    """Run the text of a program in a forked process, and wait for its end."""
    receiver, sender = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=_execute, args=(program, [*map(str, arguments)], sender))
    process.start()
    sender.close()
    with os.fdopen(os.dup(receiver.fileno()), encoding="utf-8", errors="replace") as errors:
        text = errors.read()
    receiver.close()
    process.join()
    assert process.exitcode is not None
    return Ended(process.exitcode, text)


def _execute(program: str, arguments: list[str], errors: Connection) -> None:
    os.dup2(errors.fileno(), 2)
    errors.close()
    sys.argv[1:] = arguments
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
