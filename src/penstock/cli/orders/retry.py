"""`penstock retry`: run failed requests again."""

from typing import Final

from penstock.cli.options import DataOptions, JsonOption
from penstock.cli.orders.attempts import AllOption, IdsArgument, give
from penstock.cli.remote import RemoteOptions

HELP: Final = """Run a failed request again, as another attempt of the same id.

Mend the code and deploy it first. The request must have failed by an exception that the application does not declare
(no class of Aborted), by a limit, or by an incident. An answer that the application has declared is final. The attempt
runs once: the command may be repeated. From then on the id has the outcome of the new attempt. A request that a handler
has sent is named by its id, such as order-7~~1.

Exit code 0: all attempts are in the log. Exit code 1: some requests get no attempt; the messages say why.

\b
Examples:
  penstock retry order-7~~1 --data DIR
  penstock retry --all --url http://127.0.0.1:8000 --key KEY
"""


def command(
    options: DataOptions,
    remote: RemoteOptions,
    ids: IdsArgument = None,
    every: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run failed requests again; see `HELP`."""
    give("retry", ids, options, remote, every=every, as_json=as_json)
