"""`penstock cancel`: cancel a scheduled request before it is due, or end the rest of a cascade."""

from typing import Final

from penstock.cli.options import AppOptions, JsonOption, RequestIdArgument
from penstock.cli.output import print_result
from penstock.cli.remote import RemoteOptions

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


def command(
    request_id: RequestIdArgument,
    options: AppOptions,
    remote: RemoteOptions,
    as_json: JsonOption = False,
) -> None:
    """Cancel a scheduled request; see `HELP`.

    Raises:
        RequestError: No request has this id.
    """
    options.find()
    from rich.text import Text

    from penstock.client.encoding import path_of
    from penstock.orders.cancellation import Cancelled, cancel_at

    if remote.url is None:
        done = cancel_at(options.place(), request_id)
    else:
        done = remote.delete(f"{path_of('requests', request_id)}?beginning=true", Cancelled)
    line = Text(
        f"Cancelled {done.request_id}. It never runs, and its id stays taken."
        if done.status == "cancelled"
        else f"The rest of the cascade of {done.request_id} ends: its waiting part does not run."
    )
    print_result(done, lambda console: console.print(line), as_json=as_json)
