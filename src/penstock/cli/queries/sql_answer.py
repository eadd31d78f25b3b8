"""The answers of `penstock sql`: from a gateway, from a running view, or from a view in this process."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.cli.options import DataOptions
from penstock.cli.progress import ProgressBar
from penstock.cli.remote import RemoteOptions
from penstock.errors import ConfigError, ViewUnavailable
from penstock.sql_view.query_body import QueryBody
from penstock.sql_view.view_client import EncodedAnswer, query, query_view, socket_of

if TYPE_CHECKING:
    from penstock.model.application import App
    from penstock.process.config import Config
    from penstock.sql_view.as_of_query import AsOfQueries
    from penstock.sql_view.query import QueryResult
    from penstock.sql_view.result_format import ResultFormat
    from penstock.sql_view.view import View

_LOOK_S: Final = 0.05


def answer_to(
    question: QueryBody, result_format: "ResultFormat", options: DataOptions, remote: RemoteOptions
) -> EncodedAnswer:
    """Return the answer of a gateway, of the view of a data directory, or of a view in this process.

    Args:
        remote: The gateway, if the command line names one.
    """
    if remote.url is None:
        return _answer_here(question, result_format, options)
    with remote.connection() as connection:
        return query(connection, msgspec.json.encode(question), result_format, None)


def _answer_here(
    question: QueryBody, result_format: "ResultFormat", options: DataOptions
) -> EncodedAnswer:
    """Query the view of a data directory, or build the view in this process if none runs."""
    loaded = None if options.spec is None else options.load()
    folder = options.folder() if loaded is None else loaded[1].data
    socket = socket_of(folder)
    if socket is not None:
        return query_view(socket, msgspec.json.encode(question), result_format)
    if loaded is None and not options.settings().app:
        raise ConfigError(f"no view runs in {folder}; name the application to build one here")
    from penstock.sql_view.result_format import encode_result

    app, settings = loaded or options.load()
    require_journal(settings)
    result = _result(question, app, settings)
    return EncodedAnswer(str(result.epoch), encode_result(result, result_format))


def require_journal(settings: "Config") -> None:
    """Check that a data directory has a journal."""
    from penstock.process.data_directory import DataDirectory

    if DataDirectory(settings.data).app_name is None:
        raise ConfigError(
            f"there is no journal in {settings.data}; penstock run {settings.app} makes one"
        )


def _result(body: QueryBody, app: "App", settings: "Config") -> "QueryResult":
    from penstock.sql_view.query import Query

    question = Query(**msgspec.structs.asdict(body))
    past = question.as_of_statement()
    if past is None:
        with _opened_view(app, settings) as view:
            return view.ask(question)
    deadline = time.monotonic() + settings.view.time_ms / 1_000
    with opened_history(app, settings) as history:
        return history.ask(past, question, deadline)


@contextmanager
def opened_history(app: "App", settings: "Config") -> Iterator["AsOfQueries"]:
    """Open the history in a data directory, which has a journal; nothing is written there."""
    from penstock.process.data_directory import DataDirectory
    from penstock.sql_view.as_of_query import as_of_queries

    with closing(DataDirectory(settings.data).open_journal(app)) as journal:
        yield as_of_queries(settings.data, app, journal, settings.view)


@contextmanager
def _opened_view(app: "App", settings: "Config") -> Iterator["View"]:
    """Open a view in this process, and bring it up to date behind a progress bar."""
    from penstock.process.data_directory import DataDirectory
    from penstock.sql_view.view import View

    with (
        closing(DataDirectory(settings.data).open_journal(app)) as journal,
        closing(View(settings.data, app, journal, settings.view)) as view,
    ):
        view.start()
        first, last = view.epoch, view.journal_epoch()
        # A view that is nearly up to date needs no bar.
        if not view.await_epoch(last, _LOOK_S):
            with ProgressBar("reading the journal") as bar:
                while not view.await_epoch(last, _LOOK_S):
                    if view.problem is not None:
                        raise ViewUnavailable(
                            f"the SQL view cannot go on from epoch {view.epoch}: {view.problem}"
                        )
                    bar.at(view.epoch - first, last - first)
        yield view
        view.stop()
        journal.close()  # else the end of the view waits for an epoch
