"""`penstock rebalance`: change the number of partitions of an application, which may run meanwhile."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.base.ids import BUCKETS
from penstock.cli.options import AppOptions, JsonOption
from penstock.cli.output import print_result
from penstock.cli.progress import ProgressBar
from penstock.cli.remote import RemoteOptions
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.base.deployment_answers import PartitionMove, PartitionProposal

HELP: Final = """Change the number of partitions of an application, which may run meanwhile.

The state lies in as many stores as there are partitions, and a large epoch runs as many tasks. The
command copies the rows into stores of the new number while the application continues. Then it appends
a control record to the log, and later epochs use the new stores. No request is refused, lost or run
again, and no outcome changes. If the application does not run, its next start makes the change.

Without --partitions, the command proposes a number from the epochs of the last hour, and changes
nothing; with --auto, it makes the change that it proposes. With the setting auto_partitions = 1, the
driver looks once a minute, and changes the number itself. With --url, a gateway takes the order; its key needs the scope admin.

\b
Examples:
  penstock rebalance examples/shop
  penstock rebalance examples/shop --partitions 8
  penstock rebalance examples/shop --auto
  penstock rebalance --data /var/lib/shop --partitions 3 --json
  penstock rebalance --partitions 8 --url https://shop.example --key KEY
"""


def command(
    options: AppOptions,
    remote: RemoteOptions,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", metavar="N", min=1, max=BUCKETS, help="The new number of partitions."
        ),
    ] = None,
    auto: Annotated[
        bool, typer.Option("--auto", help="Change to the number that the command proposes.")
    ] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait; default 60.")
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Change the number of partitions, or propose a number; see `HELP`."""
    if auto and partitions is not None:
        raise ConfigError("--auto and --partitions exclude each other: omit one of them")
    options.find()
    from penstock.orders.partitions import PROPOSAL, PartitionOrder

    if partitions is None:
        proposal = remote.report(PROPOSAL, options.place)
        if not auto or proposal.proposed == proposal.partitions:
            print_result(proposal, lambda console: _propose(proposal, console), as_json=as_json)
            return
        order = PartitionOrder(proposal.proposed, proposal.reason)
    else:
        order = PartitionOrder(partitions)
    with ProgressBar("stores") as bar:
        made = remote.give(order, lambda: options.place(told=bar.at), timeout_s)
    print_result(made, lambda console: console.print(_text_of(made, order.why)), as_json=as_json)


def _text_of(made: "PartitionMove", why: str) -> str:
    if made.before == made.partitions:
        return f"There are {made.partitions} partitions already."
    if made.epoch is None:
        from penstock.orders.order import durable

        return f"No driver runs. The change to {made.partitions} partitions is {durable()}."
    text = f"{made.before} → {made.partitions} partitions, from epoch {made.epoch + 1} on."
    return f"{text} {why}".rstrip()


def _propose(proposal: "PartitionProposal", console: "Console") -> None:
    if proposal.proposed == proposal.partitions:
        console.print(f"{proposal.partitions} partitions are a good number. {proposal.reason}")
        return
    console.print(
        f"{proposal.proposed} partitions would be a better number than {proposal.partitions}. "
        f"{proposal.reason}\nTo change it: penstock rebalance --partitions {proposal.proposed}"
    )
