"""The number of partitions, and how a running application gets another number.

The newest commit names the number in force; the setting `partitions` is the number of the first start. A control
record changes it, in these steps:

1. `copy_stores` builds the stores of the new number from the present ones, while epochs continue.
2. `append_move` appends the control record.
3. At its place, the driver brings the new stores to the epoch before the record, and commits the new number. All
   later epochs, and all readers of them, use the new stores.

`proposal_for` proposes a number, from the reports of the last epochs. A large epoch runs as many tasks as there are
partitions, and its changes are applied to as many stores at a time; a small epoch runs in one task. With the setting
`auto_partitions`, the driver makes the change that is proposed, as `PartitionPolicy` says.

Step 1 only saves time at step 3. The stores hold the same rows in both numbers, so no outcome changes.
"""

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

import msgspec

from penstock.base.deployment_answers import PartitionMove, PartitionProposal
from penstock.base.ids import BUCKETS, Epoch, Lsn
from penstock.errors import StateUnavailable
from penstock.journal.api import Commit
from penstock.log.api import Log
from penstock.log.clock import wall_clock_us
from penstock.model.control import Move
from penstock.orders.order import (
    Place,
    Report,
    Way,
    append_control,
    carried_out_apart,
    carry_out_here,
    settled,
)
from penstock.process import presence
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.driver_claim import driver_runs
from penstock.process.epoch_report import EpochReport, took_ms
from penstock.process.reports import ReportReader

if TYPE_CHECKING:
    from penstock.journal.api import Commit, Journal
    from penstock.state.stores import Stores

_DIVIDED: Final = "Hosts hold parts of the state (copies), so the number says how finely it is divided, and not how many tasks run."

MODULE: Final = "penstock.orders.partitions"
"""The module of the child process that copies the stores."""

LAST_S: Final = 3_600
"""The seconds whose epochs a proposal considers."""

LARGE_SHARE_MIN: Final = 0.2
"""If large epochs take a smaller share of the time, more partitions save nothing that can be noticed."""

REPEATED_MAX: Final = 0.4
"""If a larger share of the requests runs again because of conflicts, several tasks are not faster than one."""

AUTO_LAST_S: Final = 300
"""The seconds whose epochs a proposal considers that nobody has asked for."""

BUSY_MIN: Final = 0.5
"""Below this share of the time the cores are not what requests wait for."""

MORE_LOOKS: Final = 3
FEWER_LOOKS: Final = 10
"""How often in a row a number must be proposed before it is used. A host that is cut off may be back soon, and a copy of the
state costs more than a task too many."""


def proposal_at(place: Place) -> PartitionProposal:
    """Return the number of partitions, and a proposal."""
    directory, name = place.directory()
    with closing(directory.open_journal_of(name)) as journal:
        return proposal_for(place.settings, journal.last())


def proposal_for(settings: Config, last: Commit | None) -> PartitionProposal:
    """Propose a number for the cores of the running driver, or else for the configured cores.

    Args:
        settings: The settings, which name the data directory.
        last: The newest commit of the journal; None before the first.
    """
    cores = settings.cores
    for driver in presence.find(settings.data, "driver"):
        cores = int(driver.details.get("cores", cores))
    present = partitions_in_force(last, settings.partitions)
    if settings.copies_max is not None:
        return PartitionProposal(present, present, _DIVIDED)
    since_us = wall_clock_us() - LAST_S * 1_000_000
    reports = ReportReader(settings.data).since(since_us)
    return propose(present, cores, settings.small_epoch, reports)


def propose(
    partitions: int, cores: int, small_epoch: int, reports: Sequence[EpochReport]
) -> PartitionProposal:
    """Propose a number of partitions.

    Args:
        cores: The cores that tasks may use.
        small_epoch: An epoch of at most so many requests runs in one task.
    """
    number, reason = _choice(partitions, cores, small_epoch, reports)
    return PartitionProposal(partitions, number, reason)


def _choice(
    partitions: int, cores: int, small_epoch: int, reports: Sequence[EpochReport]
) -> tuple[int, str]:
    if partitions == cores:
        return partitions, f"There are as many partitions as cores: {cores}."
    if partitions > cores:
        return cores, f"Only {cores} tasks can run at the same time: there are {cores} cores."
    large = [report for report in reports if report.records > small_epoch]
    spent_ms = sum(took_ms(report.phases_ms) for report in reports)
    share = sum(took_ms(report.phases_ms) for report in large) / spent_ms if spent_ms else 0.0
    if share < LARGE_SHARE_MIN:
        return partitions, (
            f"Epochs of more than {small_epoch:,} requests take {share:.0%} of the time; "
            "smaller epochs run in one task, for which the number of partitions does not matter."
        )
    spread = [report for report in large if report.tasks > 1]
    requests = sum(report.records for report in spread)
    repeated = sum(report.reran for report in spread) / requests if requests else 0.0
    if repeated > REPEATED_MAX:
        return partitions, (
            f"{repeated:.0%} of the requests of large epochs run again because of conflicts, "
            "so more tasks save no time."
        )
    return cores, (
        f"Epochs of more than {small_epoch:,} requests take {share:.0%} of the time, and {cores} cores "
        f"could run {cores} of their tasks at the same time; now they run {partitions}."
    )


class PartitionPolicy:
    """Says when a running application gets the number of partitions that is proposed for it. It reads no clock and no file."""

    def __init__(self) -> None:
        self._number = 0
        self._looks = 0

    def decide(
        self, proposal: PartitionProposal, reports: Sequence[EpochReport], waiting: int
    ) -> str | None:
        """Return why the proposed number is used from now on; None if the present number stays.

        Args:
            reports: The epochs of the last `AUTO_LAST_S` seconds.
            waiting: The largest number of requests that waited for an epoch since the last call.
        """
        number, present = proposal.proposed, proposal.partitions
        busy = sum(took_ms(report.phases_ms) for report in reports) / 1e3 / AUTO_LAST_S
        if number == present or (number > present and busy < BUSY_MIN):
            self._looks = 0
            return None
        self._looks = self._looks + 1 if number == self._number else 1
        self._number = number
        if self._looks < (MORE_LOOKS if number > present else FEWER_LOOKS):
            return None
        self._looks = 0
        return (
            f"{proposal.reason} In the last {AUTO_LAST_S // 60} minutes the driver was busy for {busy:.0%} of the time, "
            f"and at most {waiting:,} requests waited in the last minute."
        )


Told = Callable[[int, int], None]
"""Takes the number of stores that are built, and of all."""

_ATTEMPTS: Final = 20
"""The driver may apply the next epoch while a copy begins; then the copy begins again, at most this often."""

_PASSES: Final = 2
"""The last catch-up is short, because it takes only the epochs of the catch-up before."""


_COPY_S: Final = 3_600.0
"""How long a gateway lets the state be copied."""


PROPOSAL: Final = Report(
    path="/partitions",
    name="partitions.get",
    answer=PartitionProposal,
    text="The proposal.",
    at=proposal_at,
)


class PartitionOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Change the number of partitions.

    The state is copied while requests continue, and the change takes effect between two epochs.

    Attributes:
        why: The reason, which the control record keeps.
    """

    partitions: Annotated[int, msgspec.Meta(ge=1, le=BUCKETS)]
    why: str = ""

    way: ClassVar[Way] = Way(
        noun="a move of buckets",
        path="/partitions",
        name="partitions.move",
        result=PartitionMove,
        text="The number is in force.",
        example='{"partitions": 8}',
        work_s=_COPY_S + 60.0,
        waits=lambda made: made.before != made.partitions and made.epoch is None,
    )

    def carry_out(self, place: Place, timeout_s: float) -> PartitionMove:
        """Copy the stores, append the control record, and wait until it has taken effect, if a driver runs."""
        settings, number = place.settings, self.partitions
        directory, name = place.directory()
        if place.told is None:  # the copy of large state would keep requests waiting
            return carried_out_apart(self, place, timeout_s, "the copy of the state", _COPY_S)
        with closing(directory.open_journal_of(name)) as journal:
            present = partitions_in_force(journal.last(), settings.partitions)
            if number == present:
                return PartitionMove(present, number, None)
            # The copy comes before the record: at its place the driver has only the last epochs to apply. Hosts that hold
            # parts of the state build theirs from the journal.
            if settings.copies_max is None:
                with closing(directory.open_stores(journal, number)) as target:
                    copy_stores(journal, present, target, place.told)
        with closing(directory.open_log(settings)) as log:
            lsn = append_move(log, number, self.why)
        # The next start of a driver makes the change; there is nothing to wait for.
        if not driver_runs(settings.data):
            return PartitionMove(present, number, None)
        reply = settled(settings, lsn, timeout_s, f"the change to {number} partitions")
        reply.value()  # raises the driver's refusal
        return PartitionMove(present, number, reply.epoch)


def partitions_in_force(last: "Commit | None", configured: int) -> int:
    """Return the number of partitions after the newest commit.

    Args:
        last: The newest commit; None before the first.
        configured: The setting, for a journal whose newest commit names no number.
    """
    return configured if last is None or not last.partitions else last.partitions


def append_move(log: Log, partitions: int, why: str = "") -> Lsn:
    """Append the control record that changes the number of partitions; return its position."""
    # Each move is an order of its own: 2, 4 and 2 again are three changes.
    return append_control(log, "move", uuid.uuid4().hex, Move(partitions, why))


def ask_for_partitions(config: Config, assignments: Iterable[str]) -> int | None:
    """Append a move, if an option names a number of partitions and the journal another one.

    Call this before the driver starts: it makes the change at once.

    Args:
        assignments: `name=value` of each setting that an option gave.

    Returns:
        The present number, if a move was appended.
    """
    if not any(each.partition("=")[0].strip() == "partitions" for each in assignments):
        return None
    directory, partitions = DataDirectory(config.data), config.partitions
    if (name := directory.app_name) is None:
        return None
    with closing(directory.open_journal_of(name)) as journal:
        present = partitions_in_force(journal.last(), partitions)
    if present == partitions:
        return None
    with closing(directory.open_log(config)) as log:
        append_move(log, partitions)
    return present


def copy_stores(journal: "Journal", former: int, target: "Stores", told: Told) -> None:
    """Build the stores of another number from the present ones, and bring them near the newest epoch.

    A process that is killed leaves whole stores, which the next copy continues with.

    Args:
        target: The stores of the other number. They stay open, so that maintenance does not delete them.
        told: Called after each store.
    """
    every = range(target.partitions)
    for partition in every:
        _at_newest(journal, lambda at: target.catch_up_one(partition, at, former))  # noqa: B023
        told(partition + 1, target.partitions)
    for _ in range(_PASSES):
        for partition in every:
            _at_newest(journal, lambda at: target.catch_up_one(partition, at))  # noqa: B023


def _at_newest(journal: "Journal", work: Callable[[Epoch], None]) -> None:
    """Do a part of the copy at the newest epoch, again if the stores are at a later epoch already."""
    failure: StateUnavailable | None = None
    for _ in range(_ATTEMPTS):
        last = journal.last()
        if last is None:
            return
        try:
            work(last.epoch)
        except StateUnavailable as error:  # usually the driver has applied the next epoch
            failure = error
        else:
            return
    assert failure is not None, "each attempt has failed"
    raise failure


if __name__ == "__main__":
    carry_out_here(PartitionOrder)
