"""The import of an application in a child process: it may never return, or end the process.

A child that imports code calls `import_guarded`, and its parent calls `ask_importing`. `application_name` is such a pair.
"""

import faulthandler
import time
from typing import TYPE_CHECKING, BinaryIO, Final, TypeVar

import msgspec

from penstock.deployment.loading import load, locate
from penstock.errors import ConfigError
from penstock.process.question import MARK, ChildEnded, answer_question, ask_child

if TYPE_CHECKING:
    from penstock.deployment.loading import Location
    from penstock.model.application import App

IMPORT_S: Final = 60.0
"""The time that an import may take."""

A = TypeVar("A")


class NameQuestion(msgspec.Struct, frozen=True):
    """The application, as for `load_app`."""

    spec: str


def import_guarded(location: "Location", import_s: float, answer_file: BinaryIO) -> "App":
    """Import an application in a child process, and end the process if that takes too long.

    Args:
        import_s: The seconds that the import may take.
    """
    # A thread in C that needs no lock of Python: it ends also an import that keeps this lock. It prints the line where
    # the import stands.
    faulthandler.dump_traceback_later(import_s, exit=True)
    try:
        app = load(location)
    finally:
        faulthandler.cancel_dump_traceback_later()
    answer_file.write(MARK)  # without it, and without an answer, the import has ended the process
    answer_file.flush()
    return app


def ask_importing(
    child: str,
    question: msgspec.Struct,
    returns: type[A],
    module: str,
    import_s: float,
    timeout_s: float | None = None,
) -> A:
    """Ask a child that imports an application first; see `ask_child`.

    Args:
        child: The module that answers the question.
        import_s: The seconds that its import may take.
        timeout_s: How long the child may run; None: as long as it needs.

    Raises:
        ChildEnded: The process ended after the import.
        TimeoutError, PenstockError: See `ask_child`.
    """
    began = time.monotonic()
    try:
        return ask_child(child, question, returns, timeout_s)
    except ChildEnded as ended:
        if ended.has_marked:
            raise
        end = f"ended its process with exit code {ended.exit_code}"
        if ended.exit_code == 1 and time.monotonic() - began >= import_s:
            end = f"has taken more than {import_s:g} s"
        raise ConfigError(f"the import of {module} {end}; nothing is deployed") from ended


def application_name(spec: str) -> str:
    """Return the name of an application, which a child process imports."""
    child, module = "penstock.deployment.guarded_import", locate(spec).module
    return ask_importing(child, NameQuestion(spec), str, module, IMPORT_S)


def _name(question: NameQuestion, answer_file: BinaryIO) -> str:
    return import_guarded(locate(question.spec), IMPORT_S, answer_file).name


if __name__ == "__main__":
    answer_question(NameQuestion, _name)
