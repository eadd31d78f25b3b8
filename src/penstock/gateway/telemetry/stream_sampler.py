"""`StreamSampler`: the rates of the streams of an application, for the load of the last hour.

It reads the state of workflows and the progress of generators from the data directory. A part that cannot be read is
missing in the sample; nothing else depends on it.
"""

import logging
from collections.abc import Mapping
from typing import Final

from penstock.errors import PenstockError
from penstock.gateway.telemetry.follow_metrics import FollowMetrics
from penstock.journal.tail import AsyncJournalTail
from penstock.model.application import App
from penstock.orders.paused_workflows import workflow_lags
from penstock.process.config import Config
from penstock.process.generator_progress import read_progress
from penstock.process.load_history import StreamSample

_log: Final = logging.getLogger(__name__)


class StreamSampler:
    """Looks at the streams of one application."""

    def __init__(
        self, app: App, config: Config, followers: FollowMetrics, tail: AsyncJournalTail
    ) -> None:
        """Create the sampler.

        Args:
            tail: The journal tail, which knows the atoms of each stream.
        """
        self.data = config.data
        self._app = app
        self._config = config
        self._followers = followers
        self._tail = tail

    def serve(self, app: App) -> None:
        """Look at the streams of another version of the application."""
        self._app = app

    def followers(self, *, begin: bool) -> dict[str, int]:
        """Return the greatest lag of a follower by stream in this step; `begin` begins a new one.

        Call this in the event loop.
        """
        return self._followers.lags(self._tail.atoms, begin=begin)

    def sample(self, followers: Mapping[str, int]) -> StreamSample | None:
        """Return the sample with these followers; None for an application without streams. It reads files."""
        topology = self._app.topology
        if not topology.streams:
            return None
        try:
            lags = workflow_lags(self._app, self._config)
        except PenstockError as error:
            _log.debug("a sample of the streams is missing: %s", error)
            return None
        progress = read_progress(self.data) if topology.generators else []
        return StreamSample(
            {name: lag for name, lag in lags.items() if lag > 0},
            followers,
            {generator.generator: generator.atoms for generator in progress},
        )
