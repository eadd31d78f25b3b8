"""A command of Penstock in a child process, for a process that must not do the work itself: it runs code, or takes long."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from penstock.errors import BY_CODE, Aborted, RequestError
from penstock.model.reply import raised_by
from penstock.model.request import Failure
from penstock.process.question import run_child

A = TypeVar("A")


class _Told(msgspec.Struct):
    code: str
    message: str


class _Refused(msgspec.Struct):
    error: _Told


def ask_command(words: Sequence[str], answer_type: type[A], timeout_s: float) -> A:
    """Run a command with `--json`, and return what it has printed.

    Args:
        words: The words of the command.
        answer_type: The type of its answer.
        timeout_s: How long the command may run.

    Raises:
        TimeoutError: It has run for longer.
        PenstockError: The command has failed with this error, or its process has ended without an answer.
    """
    told, exit_code = run_child(words, b"", timeout_s)
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(told, type=answer_type)
    try:
        error = msgspec.json.decode(told, type=_Refused).error
    except msgspec.MsgspecError:
        raise RequestError(
            f"the process of penstock {words[1]} ended with exit code {exit_code} and no answer; the code that it "
            "imports may have ended it"
        ) from None
    raise raised_by(Failure(error.code, BY_CODE.get(error.code, Aborted).__name__, error.message))
