"""`penstock cancel`: cancel a scheduled request before it is due, or end the rest of a cascade."""

from contextlib import closing
from dataclasses import replace
from typing import Annotated, Final, Literal

import typer
from msgspec import Struct

from penstock.cli.options import AppOptions, JsonOption
from penstock.cli.output import print_result
from penstock.cli.remote import RemoteOptions
from penstock.errors import RequestError, TooLate

HELP: Final = """Cancel a request that was sent with a delay and is not due yet.

The request never runs. Its id stays taken, and its result is the error cancelled. A request that was
due before is refused with too-late. The application may run or be stopped.

If the request has run, and a part of its cascade still waits, the command ends this part:
the requests that its handlers have sent, and the workflow steps, do not run any more.

\b
Examples:
  penstock cancel dee-buys-othello examples/boxoffice
  penstock cancel dee-buys-othello --data DIR --json
  penstock cancel dee-buys-othello --url http://127.0.0.1:8000
  penstock cancel web~dee-buys-othello examples/boxoffice

\b
The last request was sent with the API key `web`; SQL shows ids in the same form.
"""


class _Cancelled(Struct):
    """The answer of a gateway, or of the command itself."""

    request_id: str
    status: Literal["cancelled", "ending"] = "cancelled"


def command(
    request_id: Annotated[
        str,
        typer.Argument(
            metavar="REQUEST_ID",
            help="The request: its id, or the beginning of its id.",
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

    done = (
        _cancel_here(request_id, options) if remote.url is None else _cancel_at(remote, request_id)
    )
    line = Text(
        f"Cancelled {done.request_id}. It never runs, and its id stays taken."
        if done.status == "cancelled"
        else f"The rest of the cascade of {done.request_id} ends: what waits of it does not run."
    )
    plain = {"request_id": done.request_id, "status": done.status}
    print_result(plain, lambda console: console.print(line), as_json=as_json)


def _cancel_at(remote: RemoteOptions, text: str) -> _Cancelled:
    """Let a gateway cancel a request of the caller's own."""
    from penstock.client.encoding import path_of

    return remote.delete(f"{path_of('requests', text)}?beginning=true", _Cancelled)


def _cancel_here(text: str, options: AppOptions) -> _Cancelled:
    """Cancel a request in the log of a data directory."""
    config = replace(options.settings(), data=options.folder())
    from penstock.orders.cancellation import cancel, complete, end_cascade
    from penstock.process.data_directory import DataDirectory

    directory = DataDirectory(config.data)
    if not directory.log_path.exists():  # opening it would create it
        raise RequestError(f"{config.data} has no requests: no application has run there")
    with closing(directory.open_log(config)) as log:
        request_id = complete(log, text)
        try:
            lsn = cancel(log, request_id)
        except TooLate:
            if end_cascade(config, log, request_id) is None:
                raise
            return _Cancelled(request_id, "ending")
        if lsn is None:
            raise RequestError(
                f"no request has the id {text}, or its id is no longer kept; "
                "the console lists the requests that are scheduled"
            )
    return _Cancelled(request_id)
