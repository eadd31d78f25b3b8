"""`penstock discard`: let failed requests have no further attempt."""

from typing import Final

from penstock.cli.options import DataOptions, JsonOption
from penstock.cli.orders.attempts import AllOption, IdsArgument, give
from penstock.cli.remote import RemoteOptions

HELP: Final = """Let a failed request have no further attempt.

The request leaves the list of penstock failed, and its result is the error cancelled. This is final.

Exit code 0: the orders are in the log. Exit code 1: some requests cannot be discarded; the messages say why.

\b
Examples:
  penstock discard order-7~~1 --data DIR
  penstock discard --all --data DIR
"""


def command(
    options: DataOptions,
    remote: RemoteOptions,
    ids: IdsArgument = None,
    every: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Discard failed requests; see `HELP`."""
    give("discard", ids, options, remote, every=every, as_json=as_json)
