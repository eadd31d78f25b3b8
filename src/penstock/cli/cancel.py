"""`penstock cancel`: cancel a scheduled request before it is due."""

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.base.ids import RequestId
from penstock.cli import word_completion
from penstock.cli.options import AppOptions, JsonOption
from penstock.cli.output import print_result
from penstock.cli.remote import RemoteOptions
from penstock.errors import RequestError

if TYPE_CHECKING:
    from penstock.log.api import Log

HELP: Final = """Cancel a request that was sent with a delay and is not due yet.

The request never runs. Its id stays taken, and its result is the error cancelled. A request that was
due before is refused with too-late. The application may run or be stopped.

\b
Examples:
  penstock cancel dee-buys-othello examples/boxoffice
  penstock cancel dee-buys-othello --data DIR --json
  penstock cancel dee-buys-othello --url http://127.0.0.1:8000
  penstock cancel web~dee-buys-othello examples/boxoffice

\b
The last request was sent with the API key `web`; SQL shows ids in the same form.
"""

_SCHEDULED_MAX: Final = 100_000
"""The most scheduled requests among which the beginning of an id is looked up."""

_NAMED_MAX: Final = 5


def command(
    request_id: Annotated[
        str,
        typer.Argument(
            metavar="REQUEST_ID",
            help="The request: its id, or the beginning of its id.",
            autocompletion=word_completion.scheduled_ids,
        ),
    ],
    options: AppOptions,
    remote: RemoteOptions,
    as_json: JsonOption = False,
) -> None:
    """Cancel a scheduled request; see `HELP`.

    Raises:
        RequestError: No request has this id.
        TooLate: The request was due before.
    """
    from rich.text import Text

    if remote.url is None:
        request_id = _cancel_here(request_id, options)
    else:
        with remote.client() as client:
            client.cancel(request_id)
    line = Text(f"Cancelled {request_id}. It never runs, and its id stays taken.")
    plain = {"request_id": request_id, "status": "cancelled"}
    print_result(plain, lambda console: console.print(line), as_json=as_json)


def _cancel_here(text: str, options: AppOptions) -> str:
    """Cancel a request in the log of a data directory; return its full id."""
    config = replace(options.settings(), data=options.folder())
    from penstock.process.cancellation import cancel
    from penstock.process.data_directory import DataDirectory

    directory = DataDirectory(config.data)
    if not directory.log_path.exists():  # opening it would create it
        raise RequestError(f"{config.data} has no requests: no application has run there")
    with closing(directory.open_log(config)) as log:
        request_id = _complete(log, text)
        if cancel(log, request_id) is None:
            raise RequestError(
                f"no request has the id {text}, or its id is no longer kept; "
                "the console lists the requests that are scheduled"
            )
    return request_id


def _complete(log: "Log", text: str) -> RequestId:
    """Return the id that is the text, or the only scheduled id that begins with it.

    Raises:
        RequestError: Several scheduled ids begin with the text.
    """
    if log.scheduled(RequestId(text)) is not None or log.find(RequestId(text)) is not None:
        return RequestId(text)
    scheduled = [entry.request_id for _, entry in log.upcoming(_SCHEDULED_MAX)]
    fitting = sorted(name for name in scheduled if name.startswith(text))
    if len(fitting) > 1:
        names = ", ".join(fitting[:_NAMED_MAX])
        more = ", …" if len(fitting) > _NAMED_MAX else ""
        raise RequestError(
            f"several scheduled ids begin with {text}: {names}{more}; write more of the id"
        )
    return fitting[0] if fitting else RequestId(text)
