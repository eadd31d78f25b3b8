"""Programs and commands of tests in processes that are forked from a process that has imported Penstock.

A start of Python with Penstock's libraries takes a second of a processor, and a fork takes some
milliseconds. A test of a start, of signals, or of a conversation needs a process of its own.
"""

import atexit
import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir, suppress
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, Final

from penstock.process.question import ChildOutput
from tests.checkout import TOP

PRELOADED: Final = [
    "hypothesis",
    "penstock.cli.main",
    "penstock.history.backup",
    "penstock.history.code_report",
    "penstock.history.deployment_difference",
    "penstock.history.restore",
    "penstock.retention.maintenance",
    "penstock.snapshots.snapshot_writer",
    "penstock.sql_view.as_of_query",
    "penstock.sql_view.view",
    "penstock.testing",
    "pytest",
    "tests.differential.test_cluster_epochs",
    "tests.faults.epoch_process",
    "tests.unit.runtime.test_warden",
    "tests.views.processes",
]
"""Modules that the programs import; a module that is missing here costs time, and nothing else."""

_STARTING: Final = threading.Lock()


@cache
def processes() -> ForkServerContext:
    """Return the maker of processes that are forked from a process of one thread, which has imported `PRELOADED`.

    A process of pytest has one such server, and one list for it: a second call of `set_forkserver_preload` would replace the list.
    """
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(PRELOADED)
    with _STARTING, chdir(TOP):  # where it finds the modules of the tests
        forkserver.ensure_running()
    return made


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


def child(
    words: Sequence[str],
    question: bytes,
    timeout_s: float | None,
    *,
    nice: int = 0,
    environment: Mapping[str, str] | None = None,
    is_quiet: bool = False,
) -> ChildOutput:
    """Do as `penstock.process.question.run_child`, in a forked process in place of a new interpreter.

    Variables that Python reads at its start, such as PYTHONHASHSEED, have no effect.
    """
    with tempfile.TemporaryDirectory() as temporary:
        asked, told = Path(temporary, "asked"), Path(temporary, "told")
        asked.write_bytes(question)
        told.touch()
        output = os.open(os.devnull, os.O_WRONLY) if is_quiet else os.dup(2)
        errors = Connection(output, readable=False)
        variables = dict(os.environ if environment is None else environment)
        process = processes().Process(
            target=_answer, args=(errors, variables, [*words], asked, told, Path.cwd(), nice)
        )
        process.start()
        errors.close()
        try:
            process.join(timeout_s)
            if process.exitcode is None:
                raise TimeoutError
        finally:
            assert process.pid is not None, "it has been started"
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.join()
        return ChildOutput(told.read_bytes(), process.exitcode)


def _finish(target: Callable[..., None], *arguments: Any) -> tuple[int, bytes]:
    """Run a function in a forked process; return how the process ended, and its standard error."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = processes().Process(target=target, args=(sender, dict(os.environ), *arguments))
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


def _answer(  # noqa: PLR0913 -- what a process is started with
    errors: Connection,
    environment: dict[str, str],
    words: list[str],
    asked: Path,
    told: Path,
    folder: Path,
    nice: int,
) -> None:
    os.setsid()
    _prepare(errors, environment)
    os.setpriority(os.PRIO_PROCESS, 0, nice)
    os.chdir(folder)
    for number, path, flags in ((0, asked, os.O_RDONLY), (1, told, os.O_WRONLY)):
        descriptor = os.open(path, flags)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.argv[:] = words
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    finally:
        sys.stdout.flush()
        atexit._run_exitfuncs()  # as in `_command`


def _prepare(errors: Connection, environment: dict[str, str]) -> None:
    """Give the process the standard error and the environment of a process that the test starts."""
    os.dup2(errors.fileno(), 2)
    errors.close()
    os.environ.clear()
    os.environ.update(environment)
