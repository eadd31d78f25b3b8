"""`penstock resume`: let the views of a restored or forked directory write, and its effects be called."""

from typing import Final

from penstock.cli.options import AppOptions, JsonOption
from penstock.cli.orders.flow import user
from penstock.cli.orders.view import show_views
from penstock.cli.output import print_result
from penstock.cli.remote import RemoteOptions

HELP: Final = """End the hold of a restored or forked directory: its views write into their targets from now on, and its effects are called.

A copy begins with its views and effects held: the settings may name the databases of the original, and a mail that the
original has sent would be sent again. Give the copy databases of its own, or end the original, discard the effects that
must not be called, and then resume. A position of the original in a target is refused until
penstock view rebuild.

\b
Examples:
  penstock resume examples/shop --data /tmp/shop-copy
  penstock resume --url http://127.0.0.1:8000
"""


def command(options: AppOptions, remote: RemoteOptions, as_json: JsonOption = False) -> None:
    """End the hold; see `HELP`."""
    options.find()
    from penstock.orders.view_orders import EndOfHold

    state = remote.give(EndOfHold(), lambda: options.place()._replace(by=user()))
    print_result(state, lambda console: show_views(state, console), as_json=as_json)
