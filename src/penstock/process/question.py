"""A question to a child process, and the child's side of it: structs over standard input and output.

The parent writes one encoded struct to the child's standard input and reads one from its standard
output. The text that an application prints goes to standard error, so that it cannot damage the
answer. A child that runs code of a user has a time limit, and a session of its own, which ends with it. It has a lower
priority than the processes that serve requests.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, TypeVar

import msgspec

NICE: Final = 5
"""The nice value of a child: to load libraries takes a core for a second, and replies must not come later for that."""

Q = TypeVar("Q")


class ChildAnswer(NamedTuple):
    """What a child process has written to its standard output, and its exit code."""

    told: bytes
    exit_code: int


def ask_child(words: Sequence[str], question: bytes, timeout_s: float | None) -> ChildAnswer:
    """Run Python in a child process, and end all processes that it has started.

    Args:
        words: The arguments of Python: a module with its arguments.
        question: The standard input.
        timeout_s: How long the child may run; None: as long as it needs.

    Raises:
        TimeoutError: The child has run for longer.
    """
    with subprocess.Popen(  # noqa: S603 -- modules of ours
        [sys.executable, "-P", "-m", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        with suppress(OSError):  # it has ended
            os.setpriority(os.PRIO_PROCESS, child.pid, NICE)
        try:
            told, _ = child.communicate(question, timeout_s)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError from error
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)  # also processes that an import has started
    return ChildAnswer(told, child.returncode)


def encode_question(question: msgspec.Struct) -> bytes:
    """Return the bytes for the child's standard input; a `Config` may be part of the question."""
    return msgspec.msgpack.encode(question, enc_hook=str)


def receive_question(question_type: type[Q]) -> tuple[Q, BinaryIO]:
    """Return the question on standard input, and the file for the answer.

    From here on, standard output is standard error, for Python code and for libraries in C.
    """
    answer_file = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    data = sys.stdin.buffer.read()
    return msgspec.msgpack.decode(data, type=question_type, dec_hook=_path_of), answer_file


def _path_of(field_type: type, text: object) -> object:
    assert field_type is Path, f"{field_type} has no text"
    return Path(str(text))
