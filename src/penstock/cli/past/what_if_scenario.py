"""The work of `penstock what-if`: the scenario that the command line describes, run and compared."""

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from penstock.base.ids import Epoch
from penstock.cli.options import AppOptions
from penstock.cli.past.what_if_report import QueryDifference, WhatIfReport
from penstock.cli.progress import epoch_progress
from penstock.errors import ConfigError
from penstock.files.temporary_folder import temporary_folder
from penstock.history.branch import new_directory
from penstock.history.code_versions import CodeVersions
from penstock.history.edits import ParsedEdits, drop_edits, read_edits, resolve_edits
from penstock.history.reader import HistoryReader
from penstock.history.scratch_journal import epoch_shift
from penstock.history.what_if import Scenario, alternate_app, what_if
from penstock.journal.api import ignore_step
from penstock.model.application import App
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.sql_view.as_of_clause import AsOfStatement
from penstock.sql_view.as_of_query import as_of_queries
from penstock.sql_view.query import Query, QueryResult
from penstock.sql_view.result_diff import diff_results, entity_query

STANDARD_INPUT: Final = "-"


@dataclass(frozen=True, slots=True)
class RequestedScenario:
    """The scenario as the command line describes it.

    Attributes:
        span: The first and the last epoch, if the command names them.
        new_app: Other code for all epochs, named as an application is; None: the code of each epoch.
        without: The ids of requests to leave out, or the beginnings of ids.
        edits: The file of edits; `-` is standard input.
        queries: SQL queries whose results are compared.
        keep: A new directory for the outcome; None: it is not kept.
    """

    span: tuple[int | None, int | None]
    new_app: str | None
    without: Sequence[str]
    edits: str | None
    queries: Sequence[str]
    keep: Path | None


def report_on(wanted: RequestedScenario, options: AppOptions) -> WhatIfReport:
    """Run a scenario, and return the differences from the journal."""
    application, settings = options.load()
    file_edits = _edits(wanted.edits)
    with ExitStack() as stack:
        other = application
        if wanted.new_app is not None:
            other = stack.enter_context(alternate_app(wanted.new_app, settings.app))
        past = stack.enter_context(HistoryReader(settings.data, application, "what-if"))
        span = past.span(*wanted.span)
        left_out = drop_edits([past.complete(request_id) for request_id in wanted.without])
        edits = ParsedEdits([*left_out, *file_edits.edits], file_edits.errors)
        versions = CodeVersions(
            past,
            other,
            wanted.new_app or settings.app,
            present_only=wanted.new_app is not None,
            remedy=f"--code {settings.app}",
        )
        stack.enter_context(versions)
        changes = resolve_edits(edits, past, lambda epoch: versions.at(epoch).app, span)
        each = versions if wanted.new_app is None else None
        alternative = Scenario(application, other, changes, each)
        statements = [entity_query(query, application) for query in wanted.queries]
        before = _answers(statements, application, settings.data, settings, span[1])
        scratch = _scratch(stack, wanted.keep, settings.data, wanted=bool(statements))
        with epoch_progress(span) as progress:
            result = what_if(past, alternative, settings.limits, span, progress, scratch)
        here = Epoch(span[1] - epoch_shift(span[0]))
        after = [] if scratch is None else _answers(statements, other, scratch, settings, here)
        answers = [
            QueryDifference(statement.query, diff_results(*both))
            for statement, *both in zip(statements, before, after, strict=True)
        ]
    return WhatIfReport(result, answers, wanted.keep, epoch_shift(span[0]))


def _edits(file: str | None) -> ParsedEdits:
    """Return the edits of a file."""
    if file is None:
        return ParsedEdits([], [])
    try:
        text = sys.stdin.buffer.read() if file == STANDARD_INPUT else Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    return read_edits(text)


def _scratch(stack: ExitStack, keep: Path | None, data: Path, *, wanted: bool) -> Path | None:
    """Return the directory for the new epochs, or None if neither `keep` nor a query needs one."""
    if keep is not None:
        if keep.resolve().is_relative_to(data.resolve()):
            raise ConfigError(
                f"--keep {keep} lies in the application's data directory; name another directory"
            )
        return stack.enter_context(new_directory(keep, ignore_step, "what-if-before-rename"))
    if wanted:
        return stack.enter_context(temporary_folder("what-if"))
    return None


def _answers(
    statements: list[AsOfStatement], app: App, data: Path, settings: Config, epoch: Epoch
) -> list[QueryResult]:
    """Return the results of all queries over a data directory as of an epoch."""
    if not statements:
        return []
    with closing(DataDirectory(data).open_journal(app)) as journal:
        history = as_of_queries(data, app, journal, settings.view)
        return [
            history.ask(
                replace(statement, moment=epoch),
                Query(statement.query),
                time.monotonic() + settings.view.time_ms / 1_000,
            )
            for statement in statements
        ]
