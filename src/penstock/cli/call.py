"""`penstock call`: send one request to an application, and print its reply."""

import sys
import time
import uuid
from contextlib import closing, redirect_stdout
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from penstock.base.ids import ONLY_PARTITION, Lsn, RequestId
from penstock.cli.error_output import REPLY_IS_ERROR, show
from penstock.cli.options import AppOptions
from penstock.cli.output import print_json
from penstock.errors import PenstockError, RequestError, TimedOut
from penstock.gateway.request_ids import check_stored
from penstock.journal.api import Journal
from penstock.journal.tail import JournalTail
from penstock.log.api import Entry
from penstock.model.application import App
from penstock.model.declaration import CREATIONS
from penstock.model.reply import Reply
from penstock.model.request import decode_request
from penstock.process import presence
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.runtime.reads.messages import ReadCall
from penstock.runtime.reads.reader import Reader

CONTEXT_SETTINGS: Final = {"ignore_unknown_options": True}

HELP: Final = """Append one request to an application's log, wait for its reply and print it as JSON.

A call of a @readonly handler is not appended: this process runs it over the newest state, whether the
application runs or not. With --request-id it is a request like any other.

WORDS are ENTITY KEY METHOD [ARGUMENT …], or FUNCTION [ARGUMENT …]. An argument is JSON or bare
text, by position or as name=value. A reference is written as its key. With the key -, a creation
derives the key.

The request is durable before the command waits for the reply: if penstock run is stopped, the request
is processed at the next start. The same --request-id never takes effect twice.

Exit codes: 0 the reply is a value, 3 the reply is an error, 2 the request is wrong, 1 anything else.

\b
Examples:
  penstock call examples/shop Item create-me create price=3 stock=10
  penstock call examples/shop Item create-me add 5
  penstock call examples/shop User - create credit=100
  penstock call examples/shop Order o1 addItem create-me quantity=2 --request-id add-1
  penstock call examples/shop Item create-me add -- -5
  penstock call kiosk.py Item tea cost 2
"""


def command(
    options: AppOptions,
    words: Annotated[list[str], typer.Argument(metavar="WORDS…", help="The call; see above.")],
    request_id: Annotated[
        str | None,
        typer.Option("--request-id", metavar="ID", help="As SQL shows it; default: a new one."),
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait.", min=0)
    ] = 30.0,
) -> None:
    """Append one request and print its reply; see `HELP`."""
    application, settings = options.load()
    body, touches = request_of(application, words)
    chosen = check_stored(request_id or uuid.uuid4().hex)
    messages = Console(stderr=True)
    DataDirectory(settings.data).create()
    named = decode_request(body)
    if request_id is None and application.signature(named.entity, named.method).readonly:
        reply = read(application, settings, ReadCall(chosen, body))
    else:
        entry = Entry(chosen, body, touches, time.time_ns() // 1_000)
        with closing(
            DataDirectory(settings.data).open_journal(application)
        ) as journal:  # it may refuse
            lsn = _append(settings, entry)
            _warn_if_nothing_runs(messages, settings, options.app, lsn, chosen)
            reply = await_reply(journal, lsn, chosen, timeout_s)
    try:
        value: Any = reply.value()
    except PenstockError as error:
        show(error, messages)
        raise typer.Exit(REPLY_IS_ERROR) from None
    print_json(value)


def read(app: App, settings: Config, call: ReadCall) -> Reply:
    """Run a `@readonly` call over the newest state, in this process.

    Args:
        app: The application.
        settings: Its settings.
        call: The call; the text that its handler prints goes to standard error.

    Raises:
        PenstockError: The state cannot be read.
    """
    partitions = presence.state_partitions(settings.data, settings.partitions)
    with (
        closing(Reader(app, settings.data, settings.limits, partitions)) as reader,
        redirect_stdout(sys.stderr),
    ):
        return reader.reply(call)


def _warn_if_nothing_runs(
    messages: Console, settings: Config, app: str, lsn: Lsn, request_id: RequestId
) -> None:
    """Say that a request waits, if neither a supervisor nor a driver runs."""
    if not any(presence.find(settings.data, role) for role in presence.SINGLE):
        messages.print(
            f"No penstock run is running in {settings.data}. The request is durable "
            f"(position {lsn}, id {request_id}) and waits for: penstock run {app}",
            style="yellow",
            highlight=False,
        )


def request_of(app: App, words: list[str]) -> tuple[bytes, bytes]:
    """Encode the request that the words of a command line describe.

    Raises:
        RequestError: The words name no method or function, or the arguments do not fit.
    """
    first, *rest = words
    if first not in app.entities:
        signature = app.signature("", first) if app.functions else _no_entity(app, first)
        positional, named = signature.parse(rest)
        return app.request("", None, first, positional, named)
    if len(rest) < 2:
        methods = ", ".join([*app.entities[first].methods, "create", "delete", "exists"])
        raise RequestError(f"{first} needs a key and a method; the methods are {methods}")
    key_text, method, *arguments = rest
    key = _key_of(app, first, key_text, method)
    positional, named = app.signature(first, method).parse(arguments)
    return app.request(first, key, method, positional, named)


def await_reply(journal: Journal, lsn: Lsn, request_id: RequestId, timeout_s: float) -> Reply:
    """Wait until the journal has the reply to the request at a log position.

    Raises:
        TimedOut: The reply did not come in time.
    """
    with closing(JournalTail(journal)) as tail:
        try:
            return tail.wait((ONLY_PARTITION, lsn), int(timeout_s * 1_000))
        except TimedOut:
            raise TimedOut(
                f"no reply within {timeout_s:g} s; the request is durable at position {lsn} and "
                f"will be processed; ask again with --request-id {request_id}"
            ) from None


def _append(settings: Config, entry: Entry) -> Lsn:
    log = DataDirectory(settings.data).open_log(settings)
    try:
        return log.append([entry])[0]
    finally:
        log.close()


def _no_entity(app: App, name: str) -> Any:
    raise RequestError(
        f"there is no entity class {name!r}; the classes are {', '.join(app.entities)}"
    )


def _key_of(app: App, entity: str, text: str, method: str) -> object:
    """Return the key that a word gives; None for `-` in a creation, which derives the key."""
    if text == "-" and method in CREATIONS:
        return None
    return app.key_of(entity, text)
