"""Programs and commands of tests in processes that are forked from a process that has imported Penstock.

A start of Python with Penstock's libraries takes a second of a processor, and a fork takes some
milliseconds. A test of a start, of signals, or of a conversation needs a process of its own.
"""

import atexit
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, Final

PRELOADED: Final = [
    "hypothesis",
    "penstock.cli.main",
    "penstock.history.backup",
    "penstock.history.restore",
    "penstock.retention.maintenance",
    "penstock.snapshots.snapshot_writer",
    "penstock.sql_view.as_of_query",
    "penstock.sql_view.view",
    "penstock.testing",
    "pytest",
    "tests.differential.inline",
    "tests.faults.epoch_process",
]
"""Modules that the programs import; a module that is missing here costs time, and nothing else."""

_PROCESSES: Final = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(PRELOADED)


def run(program: str, *arguments: object) -> CompletedProcess[str]:
    """Run the text of a program in a forked process; return its exit code and its standard error."""
    words = [*map(str, arguments)]
    code, errors = _finish(_execute, program, words)
    return CompletedProcess(words, code, "", errors.decode(errors="replace"))


def command(*words: str, folder: Path | None = None) -> CompletedProcess[bytes]:
    """Run a command of `penstock` in a forked process, as `python -m penstock` does."""
    with tempfile.TemporaryDirectory() as temporary:
        output = Path(temporary) / "output"
        code, errors = _finish(_command, words, folder or Path.cwd(), output)
        return CompletedProcess(words, code, output.read_bytes(), errors)


def _finish(target: Callable[..., None], *arguments: Any) -> tuple[int, bytes]:
    """Run a function in a forked process; return how the process ended, and its standard error."""
    receiver, sender = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=target, args=(sender, dict(os.environ), *arguments))
    process.start()
    sender.close()
    with os.fdopen(os.dup(receiver.fileno()), "rb") as reader:
        errors = reader.read()
    receiver.close()
    process.join()
    assert process.exitcode is not None
    return process.exitcode, errors


def _execute(
    errors: Connection, environment: dict[str, str], program: str, arguments: list[str]
) -> None:
    _prepare(errors, environment)
    sys.argv[1:] = arguments
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})


def _command(
    errors: Connection, environment: dict[str, str], words: list[str], folder: Path, output: Path
) -> None:
    from penstock.cli.main import main  # noqa: PLC0415 -- the forked process has imported it

    _prepare(errors, environment)
    descriptor = os.open(output, os.O_CREAT | os.O_WRONLY)
    os.dup2(descriptor, 1)
    os.close(descriptor)
    os.chdir(folder)
    sys.argv[1:] = words
    try:
        main()
    finally:
        sys.stdout.flush()
        atexit._run_exitfuncs()  # a process of multiprocessing ends without them


def _prepare(errors: Connection, environment: dict[str, str]) -> None:
    """Give the process the standard error and the environment of a process that the test starts."""
    os.dup2(errors.fileno(), 2)
    errors.close()
    os.environ.clear()
    os.environ.update(environment)
