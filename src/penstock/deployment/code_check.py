"""Checks the code of a deployment in a process of its own, because its import may never return, or end the process.

`check_code` is the caller's side. The child imports the code from its archive, and compares its classes with the stored
ones. It tries functions with `@migrate` and new indexes on stored entities. It changes nothing.

`unfit_requests` finds the waiting requests that the present code accepts, and the new code does not. They are no reason to
refuse the deployment: such a request fails when its turn comes, and its message says why.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from penstock.base.ids import ONLY_PARTITION, Lsn
from penstock.deployment.archives import own_paths
from penstock.deployment.code_in_force import code_in_force, folder_of, unpacked
from penstock.deployment.guarded_import import IMPORT_S, ask_importing, import_guarded
from penstock.deployment.index_trial import try_indexes
from penstock.deployment.loading import locate
from penstock.deployment.migration_trial import try_migrations
from penstock.deployment.side_modules import load_aside
from penstock.engine.request_text import call_text, rejection_of
from penstock.errors import ConfigError, NotUnique, PenstockError
from penstock.files.layout import LOG
from penstock.journal.api import Journal
from penstock.log import copy_prefix as logs
from penstock.model.application import App
from penstock.model.control import DeployedCode
from penstock.process.data_directory import DataDirectory
from penstock.process.question import ChildEnded, answer_question

SHOWN_MAX: Final = 20
"""How many of the requests are named; the others are counted."""

LOOKED_MAX: Final = 200_000
"""How many waiting requests are looked at: they bound the time of a deployment."""

TRIALS_S: Final = 60.0
"""The time that the comparison of classes and the trial of functions with `@migrate` may take."""


def unfit_requests(
    data: Path, journal: Journal, deployed: Callable[[], App | None], present: App
) -> Iterator[str]:
    """Yield a sentence for each waiting or scheduled request that the deployed code accepts, and the new code does not.

    Args:
        deployed: Returns the application that would process them without the deployment; None if there is none. It is
            called once, for the first request that does not fit.
        present: The application that would process them after it.
    """
    if not (data / LOG).exists():
        return
    last = journal.last()
    processed = Lsn(0) if last is None else last.positions.get(ONLY_PARTITION, Lsn(0))
    time_us = 0 if last is None else last.time_us
    count, former = 0, cache(deployed)
    waiting = logs.requests_after(data / LOG, processed, time_us)
    for entry in islice(waiting, LOOKED_MAX):
        rejection = rejection_of(present, entry.body)
        if not rejection:
            continue
        before = former()
        if before is not None and rejection_of(before, entry.body):
            continue
        count += 1
        if count <= SHOWN_MAX:
            yield f"request {entry.request_id}, {call_text(entry.body)}, waits and would fail: {rejection}"
    if count > SHOWN_MAX:
        yield f"{count - SHOWN_MAX:,} more waiting requests would fail"
    if next(waiting, None) is not None:
        yield f"more than {LOOKED_MAX:,} requests wait, and only the first of them were looked at"


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
        unfit: The waiting requests that will fail, a sentence for each; see `unfit_requests`.
        indexed: The most stored entities over which the code adds an index, as far as the trial has seen.
    """

    changes: list[str] = []
    removed: list[str] = []
    unfit: list[str] = []
    indexed: int = 0


def check_code(
    data: Path, code: DeployedCode, dropped: tuple[str, ...] = (), import_s: float = IMPORT_S
) -> CodeAnswer:
    """Check that code can be imported from its archive, and that its classes can read the stored entities.

    Args:
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
        indexes = try_indexes(directory, app, journal)
        if shared := [text for each in indexes for text in each.shared]:
            remedy = "Nothing was written. Give these entities other values, and deploy again."
            raise NotUnique("\n".join((*shared, remedy)))
        former = partial(_deployed, question.data, journal)
        unfit = list(unfit_requests(question.data, journal, former, app))
    lines = [f"{change.name}: {line}" for change in changes for line in change.changes]
    lines += tried + [each.text for each in indexes]
    indexed = max((each.entities for each in indexes), default=0)
    return CodeAnswer(lines, list(app.removed), unfit, indexed)


def _deployed(data: Path, journal: Journal) -> App | None:
    """Return the application in force; None if its code is not there, or cannot be imported any more."""
    try:
        code = code_in_force(data, journal)
        return None if code is None else load_aside(locate(code[0])).app
    except PenstockError:
        return None


if __name__ == "__main__":
    answer_question(CodeQuestion, _answer)
