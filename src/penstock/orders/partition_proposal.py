"""A proposal for the number of partitions, from the reports of the last epochs.

A large epoch runs as many tasks as there are partitions, and its changes are applied to as many stores at a time.
Both use the cores of the machine. A small epoch runs in one task, so the number of partitions hardly changes its
time. The proposal changes nothing; `orders.partitions` says how a number changes.
"""

from collections.abc import Sequence
from contextlib import closing
from typing import Final

from penstock.base.deployment_answers import PartitionProposal
from penstock.journal.api import Commit
from penstock.log.clock import wall_clock_us
from penstock.orders.order import Place
from penstock.orders.partitions import partitions_in_force
from penstock.process import presence
from penstock.process.config import Config
from penstock.process.epoch_report import EpochReport, took_ms
from penstock.process.reports import ReportReader

LAST_S: Final = 3_600
"""The seconds whose epochs a proposal considers."""

LARGE_SHARE_MIN: Final = 0.2
"""If large epochs take a smaller share of the time, more partitions save nothing that can be noticed."""

REPEATED_MAX: Final = 0.4
"""If a larger share of the requests runs again because of conflicts, several tasks are not faster than one."""


def proposal_at(place: Place) -> PartitionProposal:
    """Propose a number for the application of a data directory; raises as `proposal_for`, and `ConfigError`."""
    directory, name = place.directory()
    with closing(directory.open_journal_of(name)) as journal:
        return proposal_for(place.settings, journal.last())


def proposal_for(settings: Config, last: Commit | None) -> PartitionProposal:
    """Propose a number for the cores of the running driver, or else for the configured cores.

    Args:
        settings: The settings, which name the data directory.
        last: The newest commit of the journal; None before the first.

    Raises:
        OperationalError: The reports cannot be read.
    """
    cores = settings.cores
    for driver in presence.find(settings.data, "driver"):
        cores = int(driver.details.get("cores", cores))
    present = partitions_in_force(last, settings.partitions)
    since_us = wall_clock_us() - LAST_S * 1_000_000
    reports = ReportReader(settings.data).since(since_us)
    return propose(present, cores, settings.small_epoch, reports)


def propose(
    partitions: int, cores: int, small_epoch: int, reports: Sequence[EpochReport]
) -> PartitionProposal:
    """Propose a number of partitions.

    Args:
        partitions: The present number.
        cores: The cores that tasks may use.
        small_epoch: An epoch of at most so many requests runs in one task.
        reports: The reports of the last epochs.
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
