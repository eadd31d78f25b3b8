"""`penstock call`: send one request to an application, and print its reply.

The request goes to the log in the data directory, or with `--url` to a gateway. For the second way, this
module loads no package of the extra `server`.
"""

from dataclasses import replace
from typing import Annotated, Any, Final

import typer

from penstock.cli import word_completion
from penstock.cli.app_word import split_app
from penstock.cli.error_output import REPLY_IS_ERROR, describe, show
from penstock.cli.options import DataOptions, JsonOption, RequestIdOption, TimeoutOption
from penstock.cli.output import print_json
from penstock.cli.remote import RemoteOptions
from penstock.deployment.loading import load_app
from penstock.errors import Aborted, PenstockError

CONTEXT_SETTINGS: Final = {"ignore_unknown_options": True}

HELP: Final = """Send one request to an application, wait for its reply and print it as JSON.

WORDS are [APP] ENTITY KEY METHOD [ARGUMENT …], or [APP] FUNCTION [ARGUMENT …]. APP may be left out if
--app or a setting names the application. An argument is JSON or bare text, by position or as
name=value. A reference is written as its key. With the key -, a creation derives the key.

A call of a @readonly handler is not appended: it runs over the newest state, whether the application
runs or not. With --request-id it is a request like any other.

The request is durable before the command waits for the reply: if penstock run is stopped, the request
is processed at the next start. The same --request-id never takes effect twice.

With --url, a gateway takes the request, and APP is needed only for arguments that JSON does not have.

Exit code 3: the reply is an error.

\b
Examples:
  penstock call examples/shop Item create-me create price=3 stock=10
  penstock call examples/shop Item create-me add 5
  penstock call examples/shop User - create credit=100
  penstock call examples/shop Order o1 addItem create-me quantity=2 --request-id add-1
  penstock call examples/shop Item create-me add -- -5
  penstock call kiosk.py Item tea cost 2
  penstock call Item create-me add 5 --url http://127.0.0.1:8000
"""


def command(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="WORDS…", help="The call; see above.", autocompletion=word_completion.call_words
        ),
    ],
    options: DataOptions,
    remote: RemoteOptions,
    request_id: RequestIdOption = None,
    timeout_s: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Send one request and print its reply; see `HELP`."""
    form = "penstock call ENTITY KEY METHOD"
    options, words = split_app(options, words, form, remote=remote.url is not None)
    try:
        if remote.url is None:
            value = _ask_here(options, words, request_id, timeout_s)
        else:
            value = _ask_gateway(options, remote, words, request_id, timeout_s)
    except RefusedRequest as refused:
        raise typer.Exit(
            show(describe(refused.error, REPLY_IS_ERROR), as_json=as_json)
        ) from refused
    print_json(value)


class RefusedRequest(Exception):
    """The reply to the request is an error."""

    def __init__(self, error: PenstockError) -> None:
        super().__init__(str(error))
        self.error = error


def _ask_gateway(
    options: DataOptions,
    remote: RemoteOptions,
    words: list[str],
    request_id: str | None,
    timeout_s: float,
) -> Any:
    """Send the request to a gateway and return the value of its reply.

    Args:
        options: The options that may name the application.
        request_id: The id of the request; None: a new one.
        timeout_s: How long to wait for the reply.

    Raises:
        RefusedRequest: The reply is an error.
    """
    from penstock.base.lowering import lower_reply
    from penstock.cli.requests.call_words import call_of_words

    spec = options.settings().app
    app = load_app(spec) if spec else None
    call = replace(call_of_words(app, words), request_id=request_id)
    with remote.client(app, timeout_s) as client:
        try:
            return lower_reply(client.bulk([call])[0])
        except Aborted as error:
            raise RefusedRequest(error) from error


def _ask_here(
    options: DataOptions, words: list[str], request_id: str | None, timeout_s: float
) -> Any:
    """Run the request over the data directory and return the value of its reply.

    Raises:
        RefusedRequest: The reply is an error.
    """
    app, settings = options.load_unchecked()
    from penstock.cli.requests.call_words import call_of_words

    call = call_of_words(app, words)
    # With --url, the command runs without the packages that read and write a data directory.
    from penstock.cli.requests.local_call import reply_to

    reply = reply_to(app, settings, call, request_id, timeout_s)
    try:
        return reply.value()
    except PenstockError as error:
        raise RefusedRequest(error) from error
