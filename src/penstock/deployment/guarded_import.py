"""The import of an application in a child process: it may never return, or end the process.

A child that imports code calls `import_guarded`, and its parent passes the child's output to `after_import`.
`application_name` is such a pair by itself:

    python -m penstock.deployment.guarded_import < NameQuestion > IMPORTED name
"""

import faulthandler
import time
from typing import TYPE_CHECKING, BinaryIO, Final

import msgspec

from penstock.deployment.loading import load, locate
from penstock.errors import ConfigError, PenstockError
from penstock.model.reply import raised_by
from penstock.process.question import ChildAnswer, ask_child, encode_question, receive_question

if TYPE_CHECKING:
    from penstock.deployment.loading import Location
    from penstock.model.application import App

IMPORT_S: Final = 60.0
"""The time that an import may take."""

_IMPORTED: Final = b"\xc3"
"""A child writes it when its import has returned: without it, and without an answer, the import has ended the process."""


class NameQuestion(msgspec.Struct, frozen=True):
    """The application, as for `load_app`, and the seconds that its import may take."""

    spec: str
    import_s: float


class NameAnswer(msgspec.Struct, frozen=True):
    """The name of the application; or code, class and message of the error."""

    name: str = ""
    failure: tuple[str, str, str] | None = None


def import_guarded(location: "Location", import_s: float, answer_file: BinaryIO) -> "App":
    """Import an application in a child process, and end the process if that takes too long.

    Args:
        location: The application.
        import_s: The seconds that the import may take.
        answer_file: The file for the answer of the child, which begins with the mark for `after_import`.

    Raises:
        ConfigError, DefinitionError: As for `load_app`.
    """
    # A thread in C that needs no lock of Python: it ends also an import that keeps this lock. It prints the line where
    # the import stands.
    faulthandler.dump_traceback_later(import_s, exit=True)
    try:
        app = load(location)
    finally:
        faulthandler.cancel_dump_traceback_later()
    answer_file.write(_IMPORTED)
    answer_file.flush()
    return app


def after_import(answer: ChildAnswer, module: str, began: float, import_s: float) -> bytes:
    """Return the part of a child's output that comes after its import.

    Args:
        answer: The output, and the exit code.
        module: The module of the application.
        began: The monotonic time at which the child was started.
        import_s: The seconds that its import may take.

    Raises:
        ConfigError: The import took too long, or ended the process.
    """
    if answer.told:
        return answer.told.removeprefix(_IMPORTED)
    if answer.exit_code == 1 and time.monotonic() - began >= import_s:
        raise ConfigError(
            f"the import of {module} has taken more than {import_s:g} s; nothing is deployed"
        )
    raise ConfigError(
        f"the import of {module} ended its process with exit code {answer.exit_code}; nothing is deployed"
    )


def application_name(spec: str, import_s: float = IMPORT_S) -> str:
    """Return the name of an application, which a child process imports.

    Raises:
        ConfigError: The application does not exist, or its import fails, ends the process, or takes too long.
        DefinitionError: It is defined wrongly.
    """
    began, question = time.monotonic(), encode_question(NameQuestion(spec, import_s))
    told = ask_child(["penstock.deployment.guarded_import"], question, None)
    rest = after_import(told, locate(spec).module, began, import_s)
    answer = msgspec.msgpack.decode(rest, type=NameAnswer)
    if answer.failure is not None:
        raise raised_by(*answer.failure)
    return answer.name


def main() -> None:
    """Answer the question on standard input."""
    question, answer_file = receive_question(NameQuestion)
    with answer_file:
        try:
            app = import_guarded(locate(question.spec), question.import_s, answer_file)
            answer = NameAnswer(app.name)
        except PenstockError as error:
            answer = NameAnswer(failure=(error.code, type(error).__name__, str(error)))
        answer_file.write(msgspec.msgpack.encode(answer))


if __name__ == "__main__":
    main()
