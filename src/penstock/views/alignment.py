"""Alignment: readings of several views at the same epoch.

Nothing coordinates the stores. A reader takes the newest epoch of the journal, asks each applier to stop there for a moment,
opens a reading of each view, and compares the positions that it has read *inside* of them. Equal positions prove one
point; the stop only makes them likely, and ends by itself. So a reader that dies, and an applier that does not obey, cost a
try and never a wrong answer.

This solves what *Online Event Processing* (Kleppmann, Beresford, Svingen, ACM Queue 2019) leaves open: reads over
several stores that are fed from one log.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import Epoch
from penstock.errors import TimedOut, ViewUnavailable
from penstock.process.view_files import ViewState, folder_of, read_report
from penstock.views.reading import Readable, Reading
from penstock.views.target import TargetProblem

STOP_S: Final = 0.25
"""The longest time for which a reader may stop an applier."""

_LOOK_S: Final = 0.005
_STOP: Final = "stop-{}.json"
_EPOCH: Final = "epoch"
_READABLE: Final = frozenset({ViewState.FOLLOWING, ViewState.FILLING})


class _Stop(msgspec.Struct, frozen=True):
    """A reader's wish that an applier stops at an epoch, until a time of the monotonic clock of this host."""

    epoch: Epoch
    until: float


_decode: Final = msgspec.json.Decoder(_Stop).decode


class Stops:
    """The applier's side: the wishes of readers, of which an applier fulfils a part.

    Stops take at most a quarter of the time, however many readers there are.
    """

    def __init__(self, data: Path, name: str) -> None:
        self._folder = folder_of(data, name)
        self._began: float | None = None
        self._free_until = 0.0

    def bound(self, epoch: Epoch, upto: Epoch) -> Epoch:
        """Return the last epoch to apply now, from `epoch`, which is applied already, to `upto`."""
        now = time.monotonic()
        wished = [stop.epoch for stop in self._wishes(now) if epoch <= stop.epoch < upto]
        if not wished or now < self._free_until:
            self._end(now)
            return upto
        if self._began is None:
            self._began = now
        elif now - self._began > STOP_S:
            self._end(now)
            return upto
        return min(wished)

    def shown(self, epoch: Epoch) -> None:
        """Tell readers that an epoch is applied; a hint, which saves them readings."""
        path = self._folder / _EPOCH
        with suppress(OSError):
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_text(str(epoch))
            draft.replace(path)

    def _end(self, now: float) -> None:
        if self._began is not None:
            self._free_until = now + 3 * (now - self._began)
            self._began = None

    def _wishes(self, now: float) -> Iterator[_Stop]:
        for path in self._folder.glob(_STOP.format("*")):
            try:
                stop = _decode(path.read_bytes())
            except (OSError, msgspec.MsgspecError):
                continue
            if now < stop.until:
                yield stop
            elif now > stop.until + 60:  # its reader has died
                path.unlink(missing_ok=True)


class Aligner:
    """The reader's side, for the views of one data directory; any thread may use it."""

    def __init__(self, data: Path, journal: str, newest: Callable[[], Epoch]) -> None:
        """Open nothing yet.

        Args:
            journal: The identity of the journal.
            newest: Returns the newest epoch of the journal.
        """
        self._data = data
        self._journal = journal
        self._newest = newest
        self._locks: dict[frozenset[str], threading.Lock] = {}

    def aligned(
        self, targets: Mapping[str, Readable], deadline: float
    ) -> tuple[Epoch, dict[str, Reading]]:
        """Open a reading of each view, all at one epoch, which the journal had when the call began or later.

        Args:
            targets: The views by name.
            deadline: In seconds of `time.monotonic`.

        Raises:
            TimedOut: The views had no common epoch in time; the message names the one that was behind.
            ViewUnavailable: A view is not being fed, or its store does not answer.
        """
        # One alignment of the same views at a time: two would wish for different epochs, and stop the appliers twice.
        # Other views do not wait: a store that does not answer costs its own readers alone.
        lock = self._locks.setdefault(frozenset(targets), threading.Lock())
        if not lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise TimedOut("other readers of the views at one epoch took all the time")
        try:
            laggard = ""
            while time.monotonic() < deadline:
                laggard, readings = self._tried(targets, self._newest(), deadline)
                if not laggard:
                    (position, *_) = [each.position for each in readings.values()]
                    assert position is not None
                    return position.epoch, readings
        finally:
            lock.release()
        raise TimedOut(f"the views had no epoch in common in time: {laggard}")

    def _tried(
        self, targets: Mapping[str, Readable], epoch: Epoch, deadline: float
    ) -> tuple[str, dict[str, Reading]]:
        """Return readings of all views at an epoch, or at the first one behind it; or the reason why not."""
        readings: dict[str, Reading] = {}
        laggard = ""
        try:
            with self._stopped(targets, epoch) as stop:
                until = min(deadline, time.monotonic() + STOP_S)
                waiting = list(targets)
                while waiting and not laggard:
                    name = waiting.pop(0)
                    laggard = self._awaited(name, epoch, until)
                    if laggard:
                        break
                    reading = self._opened(name, targets[name])
                    if (former := readings.pop(name, None)) is not None:
                        former.close()
                    readings[name] = reading
                    position = reading.position
                    if position is None or position.epoch < epoch:
                        waiting.append(name)  # what the applier told was not of this target
                        time.sleep(_LOOK_S)
                        laggard = self._late(name, epoch) if time.monotonic() > until else ""
                    elif (
                        position.epoch > epoch
                    ):  # it did not stop in time; the others can still reach its epoch
                        epoch = position.epoch
                        stop(epoch)
                        waiting = [each for each in targets if each != name]
        except BaseException:
            _close(readings)
            raise
        if laggard:
            _close(readings)
        return laggard, readings

    def _opened(self, name: str, target: Readable) -> Reading:
        try:
            reading = target.reading()
        except TargetProblem as error:
            raise ViewUnavailable(f"view {name}: {error}") from error
        position = reading.position
        if position is not None and position.journal != self._journal:
            # Its epochs are numbers of another history: equal ones would prove nothing.
            reading.close()
            raise ViewUnavailable(f"view {name} was filled from another journal")
        return reading

    def _awaited(self, name: str, epoch: Epoch, until: float) -> str:
        """Wait until an applier has told that it has reached an epoch; return why it has not, if so."""
        path = folder_of(self._data, name) / _EPOCH
        while True:
            with suppress(OSError, ValueError):
                if int(path.read_text()) >= epoch:
                    return ""
            if time.monotonic() > until:
                break
            time.sleep(_LOOK_S)
        report = read_report(self._data, name)
        if report is None or report.state not in _READABLE:
            state = (
                "no process feeds it"
                if report is None
                else f"it is {report.state}: {report.reason}"
            )
            raise ViewUnavailable(f"view {name} has not reached epoch {epoch}; {state}")
        return self._late(name, epoch)

    @staticmethod
    def _late(name: str, epoch: Epoch) -> str:
        return f"view {name} has not reached epoch {epoch}"

    @contextmanager
    def _stopped(
        self, targets: Mapping[str, Readable], epoch: Epoch
    ) -> Iterator[Callable[[Epoch], None]]:
        """Ask the appliers to stop at an epoch during the block; yields the function that names another epoch."""
        name = _STOP.format(f"{os.getpid()}-{threading.get_ident()}")
        paths = [folder_of(self._data, each) / name for each in targets]

        def stop(at: Epoch) -> None:
            data = msgspec.json.encode(_Stop(at, time.monotonic() + STOP_S))
            for path in paths:
                with suppress(OSError):  # without the file, the views may still meet
                    draft = path.with_suffix(".new")
                    draft.write_bytes(data)
                    draft.replace(path)

        try:
            stop(epoch)
            yield stop
        finally:
            for path in paths:
                path.unlink(missing_ok=True)


def _close(readings: Mapping[str, Reading]) -> None:
    for reading in readings.values():
        reading.close()
