"""The list of streams: the rate of a stream, without a gateway."""

from datetime import UTC, datetime, timedelta

import pytest

from penstock.base.ids import Epoch
from penstock.deployment.loading import load_app
from penstock.gateway.handlers.streams import list_streams
from penstock.journal.api import Commit
from penstock.journal.atoms import AtomReader
from tests.memory_journal import MemoryJournal
from tests.stream_gateway import COUNTING

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("commits", "rate"),
    [
        ([], 0),
        ([(30, 40), (10, 60)], 2),
        ([(0.1, 5)], 5),
        ([(-5, 5)], 5),
        ([(90, 40), (61, 60), (50, 90)], 0.5),
    ],
    ids=[
        "no epoch",
        "the journal is 30 s old",
        "it is younger than a second",
        "its clock is ahead",
        "it is older than a minute",
    ],
)
def test_the_rate_is_an_average_since_a_minute_or_the_first_epoch(
    commits: list[tuple[float, int]], rate: float
) -> None:
    """Each commit has an age in seconds, and the number of atoms after it."""
    journal = MemoryJournal()
    for epoch, (age_s, atoms) in enumerate(commits):
        time_us = round((NOW - timedelta(seconds=age_s)).timestamp() * 1_000_000)
        journal.commit(Commit(Epoch(epoch), {}, (), time_us, {"lines": atoms}))
    topology = load_app(COUNTING).topology
    [listed] = list_streams(topology, journal, AtomReader(journal), ["lines"], NOW)
    assert listed.rate == rate
