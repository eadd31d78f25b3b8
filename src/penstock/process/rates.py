"""The rates of an application from the reports of its epochs: events of streams, and calls between methods."""

from collections.abc import Iterable

from penstock.dataflow.rates import Rates
from penstock.process.epoch_report import EpochReport, total_of


def rates_of(reports: Iterable[EpochReport], over_s: float) -> Rates:
    """Return the rates of epochs, without lags.

    Args:
        reports: The reports of the epochs of these seconds.
        over_s: The seconds.
    """
    recent = list(reports)
    events = total_of(report.events for report in recent)
    calls = total_of(report.calls for report in recent)
    return Rates(over_s, _per_second(events, over_s), _per_second(calls, over_s))


def _per_second(counts: dict[str, int], over_s: float) -> dict[str, float]:
    return {name: round(count / over_s, 2) for name, count in sorted(counts.items())}
