"""`penstock what-if`: run history again with other requests or other code, and compare."""

import sys
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.base.ids import Epoch
from penstock.cli.options import AppOptions, FromOption, JsonOption, ToOption
from penstock.cli.output import print_result
from penstock.cli.progress import epoch_progress
from penstock.cli.what_if_report import QueryDifference, WhatIfReport, json_of, show
from penstock.errors import ConfigError
from penstock.history.alternate_app import alternate_app
from penstock.history.branch import new_directory
from penstock.history.edits import ParsedEdits, drop_edits, read_edits, resolve_edits
from penstock.history.reader import HistoryReader
from penstock.history.scratch_journal import epoch_shift
from penstock.history.what_if import Scenario, what_if
from penstock.journal.api import ignore_step
from penstock.model.application import App
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.sql.as_of_clause import AsOfStatement
from penstock.sql.as_of_query import as_of_queries
from penstock.sql.query import Query, QueryResult
from penstock.sql.result_diff import diff_results, entity_query

HELP: Final = """Run the journal's requests again with changes, and show how the outcome differs.

With --code, other code runs them; --without leaves requests out; --edit replaces, inserts or drops
requests as a file says, one JSON object in each line:

\b
  {"request_id": "r17", "arguments": [2]}
  {"request_id": "new-1", "after": "r17", "entity": "Item", "key": "i1", "method": "add",
   "arguments": [5]}        (on one line, or all in one array)
  {"request_id": "r18", "drop": true}

The command shows the replies and entities that differ from the journal and, with --sql, the rows of a
query about entities. Epochs, times and ids stay the same. The application does not change, and may run
meanwhile. The outcome can be kept in a new data directory for sql, replay and trace.

The exit code is 0, whether something differs or not.

\b
Examples:
  penstock what-if examples/shop --without checkout-17
  penstock what-if examples/shop --code new/shop --sql "SELECT sum(credit) FROM User"
  penstock what-if examples/shop --from 100 --to 200 --edit edits.jsonl --keep /tmp/what-if --json
"""

STANDARD_INPUT: Final = "-"


def command(
    options: AppOptions,
    first: FromOption = None,
    last: ToOption = None,
    new_app: Annotated[
        str | None, typer.Option("--code", metavar="NEW_APP", help="Other code; named as APP is.")
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="REQUEST_ID", help="Leave it out; may be repeated."),
    ] = None,
    edit: Annotated[
        str | None, typer.Option("--edit", metavar="FILE", help="Edits; - is standard input.")
    ] = None,
    queries: Annotated[
        list[str] | None,
        typer.Option("--sql", metavar="QUERY", help="Compare its results; may be repeated."),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Keep the outcome; DIR must not exist."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a scenario and compare; see `HELP`."""
    application, settings = _load(options)
    file_edits = _edits(edit)
    with ExitStack() as stack:
        other = application
        if new_app is not None:
            other = stack.enter_context(alternate_app(new_app, settings.app))
        past = stack.enter_context(HistoryReader(settings.data, application, "what-if"))
        span = past.span(first, last)
        left_out = drop_edits([past.complete(request_id) for request_id in without or []])
        edits = ParsedEdits([*left_out, *file_edits.edits], file_edits.errors)
        alternative = Scenario(application, other, resolve_edits(edits, past, other, span))
        statements = [entity_query(query, application) for query in queries or []]
        before = _answers(statements, application, settings.data, settings, span[1])
        scratch = _scratch(stack, keep, settings.data, wanted=bool(statements))
        with epoch_progress(span) as progress:
            found = what_if(past, alternative, settings.limits, span, progress, scratch)
        here = Epoch(span[1] - epoch_shift(span[0]))
        after = [] if scratch is None else _answers(statements, other, scratch, settings, here)
        answers = [
            QueryDifference(statement.query, diff_results(*both))
            for statement, *both in zip(statements, before, after, strict=True)
        ]
    report = WhatIfReport(found, answers, keep, epoch_shift(span[0]))
    print_result(json_of(report), lambda console: show(report, console), as_json=as_json)


def _load(options: AppOptions) -> tuple[App, Config]:
    """Load the application.

    Raises:
        ConfigError: `--app` names the other code, as it did in an earlier version.
    """
    if options.app is not None and options.named is not None:
        raise ConfigError(
            "--app names the application, as APP does; name the other code with --code NEW_APP"
        )
    return options.load()


def _edits(file: str | None) -> ParsedEdits:
    """Return the edits of a file.

    Raises:
        ConfigError: The file cannot be read.
    """
    if file is None:
        return ParsedEdits([], [])
    try:
        text = sys.stdin.buffer.read() if file == STANDARD_INPUT else Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    return read_edits(text)


def _scratch(stack: ExitStack, keep: Path | None, data: Path, *, wanted: bool) -> Path | None:
    """Return the directory for the new epochs, or None if neither `keep` nor a query needs one.

    Raises:
        ConfigError: The directory is not empty, or lies in the application's own directory.
    """
    if keep is not None:
        if keep.resolve().is_relative_to(data.resolve()):
            raise ConfigError(
                f"--keep {keep} lies in the application's data directory; name another directory"
            )
        return stack.enter_context(new_directory(keep, ignore_step, "what-if-before-rename"))
    if wanted:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-what-if-")))
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
