"""Checks the code of a deployment in a process of its own, because its import may never return, or end the process.

`check_code` is the caller's side. The child imports the code from its archive, and compares its classes with the stored
ones. It tries functions with `@migrate` on stored entities. It changes nothing.
"""

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from penstock.deployment.archives import own_paths
from penstock.deployment.code_in_force import code_in_force, folder_of, unpacked
from penstock.deployment.guarded_import import IMPORT_S, ask_importing, import_guarded
from penstock.deployment.loading import locate
from penstock.deployment.migration_trial import try_migrations
from penstock.deployment.side_modules import load_aside
from penstock.deployment.waiting_requests import unfit_requests
from penstock.errors import ConfigError, PenstockError
from penstock.journal.api import Journal
from penstock.model.application import App
from penstock.model.control import DeployedCode
from penstock.process.data_directory import DataDirectory
from penstock.process.question import ChildEnded, answer_question

TRIALS_S: Final = 60.0
"""The time that the comparison of classes and the trial of functions with `@migrate` may take."""


class CodeQuestion(msgspec.Struct, frozen=True):
    """The code, the data directory that it is deployed into, the stored classes that it may lack, and the time of its import."""

    data: Path
    code: DeployedCode
    dropped: tuple[str, ...]
    import_s: float


class CodeAnswer(msgspec.Struct, frozen=True):
    """The answer about code that can be deployed.

    Attributes:
        changes: The changes and the trials of stored classes, a sentence for each.
        removed: The stored classes that the code lacks.
        unfit: The waiting requests that will fail, a sentence for each; see `waiting_requests`.
    """

    changes: list[str] = []
    removed: list[str] = []
    unfit: list[str] = []


def check_code(
    data: Path, code: DeployedCode, dropped: tuple[str, ...] = (), import_s: float = IMPORT_S
) -> CodeAnswer:
    """Check that code can be imported from its archive, and that its classes can read the stored entities.

    Args:
        code: The code, whose archive is stored.
        dropped: The stored classes that the code may lack.
        import_s: The time that the import may take.

    Returns:
        The compatible changes of stored classes, the stored classes that the code lacks, and the requests that it refuses.
    """
    question, work_s = CodeQuestion(data, code, dropped, import_s), import_s + TRIALS_S
    try:
        return ask_importing(
            "penstock.deployment.code_check", question, CodeAnswer, code.module, import_s, work_s
        )
    except TimeoutError as error:
        raise ConfigError(
            f"the check of {code.module} has taken more than {work_s:g} s; nothing is deployed"
        ) from error
    except ChildEnded as ended:
        raise ConfigError(
            f"the check of {code.module} ended its process with exit code {ended.exit_code}; nothing is deployed"
        ) from ended


def _answer(question: CodeQuestion, answer_file: BinaryIO) -> CodeAnswer:
    with own_paths(folder_of(question.data, question.code)):
        return _checked(question, answer_file)


def _checked(question: CodeQuestion, answer_file: BinaryIO) -> CodeAnswer:
    place = unpacked(question.data, question.code)
    app = import_guarded(place, question.import_s, answer_file)
    directory = DataDirectory(question.data)
    with closing(directory.open_journal(app, dropped=question.dropped)) as journal:
        changes = journal.schema_changes()
        directory.check_waiting(app, journal)
        tried = try_migrations(directory, app, journal)
        former = partial(_deployed, question.data, journal)
        unfit = list(unfit_requests(question.data, journal, former, app))
    lines = [f"{change.name}: {line}" for change in changes for line in change.changes]
    return CodeAnswer(lines + tried, list(app.removed), unfit)


def _deployed(data: Path, journal: Journal) -> App | None:
    """Return the application in force; None if its code is not there, or cannot be imported any more."""
    try:
        code = code_in_force(data, journal)
        return None if code is None else load_aside(locate(code[0])).app
    except PenstockError:
        return None


if __name__ == "__main__":
    answer_question(CodeQuestion, _answer)
