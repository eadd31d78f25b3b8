"""`penstock rebalance`: change the number of partitions of an application, which may run meanwhile."""

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from penstock.base.ids import BUCKETS, ONLY_PARTITION
from penstock.cli.options import AppOptions, JsonOption
from penstock.cli.output import print_result
from penstock.cli.progress import ProgressBar
from penstock.errors import ConfigError, TimedOut

if TYPE_CHECKING:
    from penstock.base.deployment_answers import PartitionProposal
    from penstock.journal.delta import DeltaJournal
    from penstock.process.config import Config

HELP: Final = """Change the number of partitions of an application, which may run meanwhile.

The state lies in as many stores as there are partitions, and a large epoch runs as many tasks. The
command copies the rows into stores of the new number while the application continues. Then it appends
a control record to the log, and later epochs use the new stores. No request is refused, lost or run
again, and no outcome changes. If the application does not run, its next start makes the change.

Without --partitions, the command proposes a number from the epochs of the last hour, and changes
nothing.

\b
Examples:
  penstock rebalance examples/shop
  penstock rebalance examples/shop --partitions 8
  penstock rebalance --data /var/lib/shop --partitions 3 --json
"""


def command(
    options: AppOptions,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", metavar="N", min=1, max=BUCKETS, help="The new number of partitions."
        ),
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait; default 60.")
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Change the number of partitions, or propose a number; see `HELP`."""
    settings = replace(options.settings(), data=options.folder())
    from penstock.process.data_directory import DataDirectory
    from penstock.process.partition_proposal import proposal_for
    from penstock.process.partitions import partitions_in_force

    directory = DataDirectory(settings.data)
    name = directory.app_name
    if name is None:
        raise ConfigError(
            f"there is no journal in {settings.data}; name the application's directory with --data"
        )
    with closing(directory.open_journal_of(name)) as journal:
        if partitions is None:
            proposal = proposal_for(settings, journal.last())
            print_result(proposal, lambda console: _propose(proposal, console), as_json=as_json)
            return
        present = partitions_in_force(journal.last(), settings.partitions)
        answer: dict[str, Any] = {"before": present, "partitions": partitions, "epoch": None}
        text = f"There are {present} partitions already."
        if partitions != present:
            text, answer["epoch"] = _moved(settings, journal, (present, partitions), timeout_s)
        print_result(answer, lambda console: console.print(text), as_json=as_json)


def _moved(
    settings: "Config", journal: "DeltaJournal", numbers: tuple[int, int], timeout_s: float
) -> tuple[str, int | None]:
    """Copy the stores, append the control record, and wait until it has taken effect, if a driver runs.

    Args:
        settings: The settings, which name the data directory.
        journal: The journal.
        numbers: The present number of partitions, and the new number.
        timeout_s: How long to wait.

    Returns:
        The result as text, and the epoch of the control record; None if it takes effect later.

    Raises:
        TimedOut: The record has not taken effect in time; it is durable, and takes effect later.
        PenstockError: The environment fails, or the driver has refused the record.
    """
    from penstock.journal.tail import JournalTail
    from penstock.process import presence
    from penstock.process.data_directory import DataDirectory
    from penstock.process.partitions import append_move, copy_stores

    directory = DataDirectory(settings.data)
    present, partitions = numbers
    with (
        closing(directory.open_stores(journal, partitions)) as target,
        closing(directory.open_log(settings)) as log,
        closing(JournalTail(journal)) as tail,
    ):
        with ProgressBar("stores") as bar:
            copy_stores(journal, present, target, bar.at)
        lsn = append_move(log, partitions)
        if not any(presence.find(settings.data, role) for role in presence.SINGLE):
            return f"No driver runs. The next start changes the number to {partitions}.", None
        try:
            reply = tail.wait((ONLY_PARTITION, lsn), int(timeout_s * 1_000))
        except TimedOut:
            raise TimedOut(
                f"the change to {partitions} partitions has not taken effect within {timeout_s:g} s; "
                f"it is durable at position {lsn} of the log, and takes effect when the driver reaches it"
            ) from None
    reply.value()  # raises the driver's refusal
    return f"{present} → {partitions} partitions, from epoch {reply.epoch + 1} on.", reply.epoch


def _propose(proposal: "PartitionProposal", console: Console) -> None:
    if proposal.proposed == proposal.partitions:
        console.print(f"{proposal.partitions} partitions are a good number. {proposal.reason}")
        return
    console.print(
        f"{proposal.proposed} partitions would be a better number than {proposal.partitions}. "
        f"{proposal.reason}\nTo change it: penstock rebalance --partitions {proposal.proposed}"
    )
