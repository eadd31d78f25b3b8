"""`penstock rebalance`: change the number of partitions of an application, which may run meanwhile."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from penstock.base.http import JSON
from penstock.base.ids import BUCKETS, ONLY_PARTITION, Epoch
from penstock.cli.options import AppOptions, JsonOption
from penstock.cli.output import print_result
from penstock.cli.progress import ProgressBar
from penstock.cli.remote import TIMEOUT_S, RemoteOptions
from penstock.errors import ConfigError, TimedOut

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.base.deployment_answers import PartitionMove, PartitionProposal
    from penstock.journal.delta import DeltaJournal
    from penstock.process.config import Config

HELP: Final = """Change the number of partitions of an application, which may run meanwhile.

The state lies in as many stores as there are partitions, and a large epoch runs as many tasks. The
command copies the rows into stores of the new number while the application continues. Then it appends
a control record to the log, and later epochs use the new stores. No request is refused, lost or run
again, and no outcome changes. If the application does not run, its next start makes the change.

Without --partitions, the command proposes a number from the epochs of the last hour, and changes
nothing. With --url, a gateway takes the order; its key needs the scope admin.

\b
Examples:
  penstock rebalance examples/shop
  penstock rebalance examples/shop --partitions 8
  penstock rebalance --data /var/lib/shop --partitions 3 --json
  penstock rebalance --partitions 8 --url https://shop.example --key KEY
"""

_PATH: Final = "/partitions"
_COPY_S: Final = 3_600.0
"""The gateway copies the state before it waits for the driver."""


def command(
    options: AppOptions,
    remote: RemoteOptions,
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
    if partitions is None:
        proposal = _proposal_here(options) if remote.url is None else _proposal_at(remote)
        print_result(proposal, lambda console: _propose(proposal, console), as_json=as_json)
        return
    if remote.url is None:
        made = _moved_here(options, partitions, timeout_s)
    else:
        made = _moved_at(remote, partitions, timeout_s)
    print_result(made, lambda console: console.print(_text_of(made)), as_json=as_json)


def _proposal_at(remote: RemoteOptions) -> "PartitionProposal":
    from penstock.base.deployment_answers import PartitionProposal

    return remote.get(_PATH, PartitionProposal)


def _moved_at(remote: RemoteOptions, partitions: int, timeout_s: float) -> "PartitionMove":
    """Change the number of partitions through a gateway; raises as `RemoteOptions.post`."""
    from penstock.base.deployment_answers import PartitionMove, PartitionOrder

    body, path = msgspec.json.encode(PartitionOrder(partitions)), f"{_PATH}?timeout={timeout_s}"
    return remote.post(path, body, JSON, PartitionMove, _COPY_S + timeout_s + TIMEOUT_S)


def _proposal_here(options: AppOptions) -> "PartitionProposal":
    from penstock.orders.partition_proposal import proposal_for

    with _opened(options) as (settings, journal):
        return proposal_for(settings, journal.last())


def _moved_here(options: AppOptions, partitions: int, timeout_s: float) -> "PartitionMove":
    """Change the number of partitions of a data directory; raises as `_moved`."""
    from penstock.base.deployment_answers import PartitionMove
    from penstock.orders.partitions import partitions_in_force

    with _opened(options) as (settings, journal):
        present = partitions_in_force(journal.last(), settings.partitions)
        if partitions == present:
            return PartitionMove(present, partitions, None)
        epoch = _moved(settings, journal, (present, partitions), timeout_s)
        return PartitionMove(present, partitions, epoch)


@contextmanager
def _opened(options: AppOptions) -> Iterator[tuple["Config", "DeltaJournal"]]:
    """Open the journal of a data directory; give it with the settings.

    Raises:
        ConfigError: The directory has no journal.
    """
    from penstock.process.data_directory import DataDirectory

    settings = replace(options.settings(), data=options.folder())
    directory = DataDirectory(settings.data)
    name = directory.app_name
    if name is None:
        raise ConfigError(
            f"there is no journal in {settings.data}; name the application's directory with --data"
        )
    with closing(directory.open_journal_of(name)) as journal:
        yield settings, journal


def _moved(
    settings: "Config", journal: "DeltaJournal", numbers: tuple[int, int], timeout_s: float
) -> Epoch | None:
    """Copy the stores, append the control record, and wait until it has taken effect, if a driver runs.

    Args:
        settings: The settings, which name the data directory.
        journal: The journal.
        numbers: The present number of partitions, and the new number.
        timeout_s: How long to wait.

    Returns:
        The epoch of the control record; None if it takes effect later.

    Raises:
        TimedOut: The record has not taken effect in time; it is durable, and takes effect later.
        PenstockError: The environment fails, or the driver has refused the record.
    """
    from penstock.journal.tail import JournalTail
    from penstock.orders.partitions import append_move, copy_stores
    from penstock.process import presence
    from penstock.process.data_directory import DataDirectory

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
            return None
        try:
            reply = tail.wait((ONLY_PARTITION, lsn), int(timeout_s * 1_000))
        except TimedOut:
            raise TimedOut(
                f"the change to {partitions} partitions has not taken effect within {timeout_s:g} s; "
                f"it is durable at position {lsn} of the log, and takes effect when the driver reaches it"
            ) from None
    reply.value()  # raises the driver's refusal
    return reply.epoch


def _text_of(made: "PartitionMove") -> str:
    if made.before == made.partitions:
        return f"There are {made.partitions} partitions already."
    if made.epoch is None:
        return f"No driver runs. The next start changes the number to {made.partitions}."
    return f"{made.before} → {made.partitions} partitions, from epoch {made.epoch + 1} on."


def _propose(proposal: "PartitionProposal", console: "Console") -> None:
    if proposal.proposed == proposal.partitions:
        console.print(f"{proposal.partitions} partitions are a good number. {proposal.reason}")
        return
    console.print(
        f"{proposal.proposed} partitions would be a better number than {proposal.partitions}. "
        f"{proposal.reason}\nTo change it: penstock rebalance --partitions {proposal.proposed}"
    )
