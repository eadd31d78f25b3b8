"""A question to a child process, and the child's side of it: structs over standard input and output.

The parent writes one encoded struct to the child's standard input. The child answers with one envelope: a value, or the
error of Penstock that has ended its work, which the parent raises. The text that an application prints goes to standard
error, so that it cannot damage the answer. A child that runs code of a user has a time limit, and a session of its own,
which ends with it. It has a lower priority than the processes that serve requests.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, TypeVar

import msgspec

from penstock.base.start import program_of
from penstock.errors import PenstockError
from penstock.model.reply import failure_of, raised_by
from penstock.model.request import Failure

NICE: Final = 5
"""The nice value of a child: to load libraries takes a core for a second, and replies must not come later for that."""

MARK: Final = b"\xc3"
"""A child may write it before its answer, when it has reached a place that its parent must know: see `guarded_import`."""

Q = TypeVar("Q")
A = TypeVar("A")


class _Envelope(msgspec.Struct, frozen=True, array_like=True):
    """The answer of a child: the encoded value, or the error that has ended the work."""

    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    failure: Failure | None = None


_envelope_in: Final = msgspec.msgpack.Decoder(_Envelope).decode


class ChildOutput(NamedTuple):
    """The standard output of a child process, and its exit code."""

    told: bytes
    exit_code: int


class ChildEnded(Exception):
    """A child has ended without an answer.

    Attributes:
        has_marked: Whether it has written `MARK`.
    """

    def __init__(self, output: ChildOutput) -> None:
        super().__init__(f"the child process ended with exit code {output.exit_code}")
        self.exit_code = output.exit_code
        self.has_marked = output.told.startswith(MARK)


def ask_child(
    module: str,
    question: msgspec.Struct,
    returns: type[A],
    timeout_s: float | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    is_quiet: bool = False,
) -> A:
    """Run a module in a child process, end all processes that it has started, and return its answer.

    Args:
        module: The module, whose `main` calls `answer_question`.
        question: The question; a `Config` may be part of it.
        timeout_s: How long the child may run; None: as long as it needs.
        environment: Its environment; None: that of this process.
        is_quiet: Whether the text that it prints is discarded.

    Raises:
        TimeoutError: The child has run for longer.
        ChildEnded: It has ended without an answer; code of a user may have ended it.
    """
    body = encode_question(question)
    output = run_child([module], body, timeout_s, environment=environment, is_quiet=is_quiet)
    return answer_in(output, returns)


def run_child(
    words: Sequence[str],
    question: bytes,
    timeout_s: float | None,
    *,
    nice: int = NICE,
    environment: Mapping[str, str] | None = None,
    is_quiet: bool = False,
) -> ChildOutput:
    """Do as `ask_child`, but take words of a command line, and return the output as it is."""
    with (
        subprocess.Popen(  # noqa: S603 -- modules of ours
            [*program_of(words[0]), *words[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if is_quiet else None,
            env=environment,
            start_new_session=True,
        ) as child
    ):
        with suppress(OSError):  # it has ended
            os.setpriority(os.PRIO_PROCESS, child.pid, nice)
        try:
            told, _ = child.communicate(question, timeout_s)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError from error
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)  # also processes that an import has started
    return ChildOutput(told, child.returncode)


def answer_in(output: ChildOutput, returns: type[A]) -> A:
    """Return the answer in a child's output; raises as `ask_child`."""
    try:
        envelope = _envelope_in(output.told.removeprefix(MARK))
        if envelope.failure is None:
            return msgspec.msgpack.decode(envelope.value, type=returns)
    except msgspec.MsgspecError as error:
        raise ChildEnded(output) from error
    raise raised_by(envelope.failure)


def encode_question(question: msgspec.Struct) -> bytes:
    """Return the bytes for the child's standard input; a `Config` may be part of the question."""
    return msgspec.msgpack.encode(question, enc_hook=str)


def answer_question(question_type: type[Q], work: Callable[[Q, BinaryIO], object]) -> None:
    """Answer the question on standard input; this is the child's side of `ask_child`.

    Args:
        work: Takes the question, and the file of the answer for a `MARK`; returns the answer.
    """
    question, answer_file = receive_question(question_type)
    try:
        answer = envelope_of(work(question, answer_file))
    except PenstockError as error:
        answer = envelope_of_failure(error)
    with suppress(BrokenPipeError), answer_file:  # the process that has asked may have ended
        answer_file.write(answer)


def envelope_of(answer: object) -> bytes:
    """Return an answer as a child writes it."""
    return msgspec.msgpack.encode(_Envelope(msgspec.Raw(msgspec.msgpack.encode(answer))))


def envelope_of_failure(error: PenstockError) -> bytes:
    """Return the error that has ended the work of a child, as it writes it."""
    return msgspec.msgpack.encode(_Envelope(failure=failure_of(error)))


def receive_question(question_type: type[Q]) -> tuple[Q, BinaryIO]:
    """Return the question on standard input, and the file for the answer.

    From here on, standard output is standard error, for Python code and for libraries in C.
    """
    answer_file = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return question_in(sys.stdin.buffer.read(), question_type), answer_file


def question_in(data: bytes, question_type: type[Q]) -> Q:
    """Return the question that `encode_question` has encoded."""
    return msgspec.msgpack.decode(data, type=question_type, dec_hook=_path_of)


def _path_of(field_type: type, text: object) -> object:
    assert field_type is Path, f"{field_type} has no text"
    return Path(str(text))
