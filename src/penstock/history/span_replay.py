"""The replay of epochs that the same code has executed: some run again, others are taken as recorded.

The epochs that are taken are those that another process runs. Behind them, the requests run in a new rerun, as in
a replay that begins there, because a rerun keeps coroutines of handlers that wait.
"""

from typing import NamedTuple

from penstock.base.ids import EntityKey
from penstock.engine.execute import Limits
from penstock.engine.replay import RecordedEpoch, apply_changes
from penstock.history.rerun import ComparedEpoch, Rerun
from penstock.model.application import App


class Tally(NamedTuple):
    """How many requests were executed, how many were skipped, and how many epochs were not compared; see `Rerun`."""

    requests: int = 0
    skipped: int = 0
    erased: int = 0

    def plus(self, other: "Tally") -> "Tally":
        """Return the sum."""
        return Tally(*map(sum, zip(self, other, strict=True)))


class SpanReplay:
    """Replays epochs in order, over a state.

    Attributes:
        state: The entities before the next epoch; the replay changes this mapping.
    """

    def __init__(
        self, app: App, state: dict[EntityKey, bytes], limits: Limits, secret: bytes
    ) -> None:
        """Begin; see `Rerun`."""
        self.state = state
        self._app = app
        self._limits = limits
        self._secret = secret
        self._rerun: Rerun | None = None

    @property
    def rerun(self) -> Rerun:
        """The rerun that executes the next epoch, or has executed the last one."""
        if self._rerun is None:
            self._rerun = Rerun(self._app, self.state, self._limits, self._secret)
        return self._rerun

    def run(self, recorded: RecordedEpoch) -> tuple[ComparedEpoch, Tally]:
        """Execute an epoch and compare it; if it is as recorded, `finish` must follow."""
        rerun = self.rerun
        before = rerun.requests, rerun.skipped, rerun.erased
        compared = rerun.compare(recorded)
        after = rerun.requests, rerun.skipped, rerun.erased
        return compared, Tally(*(now - then for now, then in zip(after, before, strict=True)))

    def finish(self) -> None:
        """Add the changes of the epoch that has run to the state."""
        self.rerun.replayer.finish()

    def take(self, changes: dict[EntityKey, bytes | None]) -> None:
        """Add the recorded changes of an epoch that another process runs to the state."""
        apply_changes(self.state, changes)
        self._rerun = None
