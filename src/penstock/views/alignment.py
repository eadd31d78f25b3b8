"""Alignment: readings of several views at the same epoch.

Nothing coordinates the stores. A reader takes the newest epoch of the journal, asks each applier to stop there for a moment,
opens a reading of each view, and compares the positions that it has read *inside* of them. Equal positions prove one
point; the stop only makes them likely, and ends by itself. So a reader that dies, and an applier that does not obey, cost a
try and never a wrong answer.

This solves what *Online Event Processing* (Kleppmann, Beresford, Svingen, ACM Queue 2019) leaves open: reads over
several stores that are fed from one log.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from penstock.base.ids import Epoch
from penstock.errors import TimedOut, ViewUnavailable
from penstock.process.view_files import ViewState, folder_of, read_report
from penstock.views.reading import Readable, Reading
from penstock.views.target import TargetProblem

_log = logging.getLogger(__name__)

STOP_S: Final = 0.25
"""The longest time for which a reader may stop an applier."""

_ROUNDS: Final = 8
"""Sets of views that are read at the same time."""

_SHARING_MAX: Final = 64
"""The most readers that share a stop, in which each of them opens readings."""

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


class Aligned(NamedTuple):
    """Readings of several views at one epoch, by the names of the views; the receiver closes them."""

    epoch: Epoch
    readings: dict[str, Reading]

    def close(self) -> None:
        """End the readings."""
        for each in self.readings.values():
            each.close()


class _Caller(NamedTuple):
    """A reader that waits for readings of some views until its deadline."""

    targets: Mapping[str, Readable]
    deadline: float
    future: Future[Aligned]


class Aligner:
    """The reader's side, for the views of one data directory; any thread may use it.

    Readers of the same views share the stops of their appliers: those who come while one is under way take part in the next
    one, all together. So the number of stops does not grow with the number of readers.

    Args:
        journal: The identity of the journal.
        newest: Returns the newest epoch of the journal.
    """

    def __init__(self, data: Path, journal: str, newest: Callable[[], Epoch]) -> None:
        self._data = data
        self._journal = journal
        self._newest = newest
        self._lock = threading.Lock()
        self._waiting: dict[frozenset[str], list[_Caller]] = {}  # an entry: a thread serves them
        self._threads = ThreadPoolExecutor(_ROUNDS, "penstock-align")

    def ask(self, targets: Mapping[str, Readable], deadline: float) -> Future[Aligned]:
        """Begin to open a reading of each view, all at one epoch, which the journal has now or later.

        The future raises `TimedOut` if the views had no common epoch in time, with the view that was behind, and
        `ViewUnavailable` if a view is not being fed, or its store does not answer.

        Args:
            targets: The views by name.
            deadline: In seconds of `time.monotonic`.
        """
        views = frozenset(targets)
        caller = _Caller(targets, deadline, Future())
        with self._lock:
            is_served = views in self._waiting
            self._waiting.setdefault(views, []).append(caller)
        if not is_served:
            # Other views do not wait: a store that does not answer costs its own readers alone.
            self._threads.submit(self._serve, views)
        return caller.future

    def close(self) -> None:
        """End the threads; readers that wait get no answer."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _serve(self, views: frozenset[str]) -> None:
        """Serve the readers of some views, in rounds, until none waits."""
        while callers := self._next(views):
            try:
                self._round(callers)
            except BaseException as error:
                _log.exception("views cannot be read at one epoch")
                failure = ViewUnavailable(f"the views cannot be read: {error!r}")
                with self._lock:
                    _refuse([*callers, *self._waiting.pop(views)], failure)
                raise
            with self._lock:
                self._waiting[views][:0] = [each for each in callers if not each.future.done()]

    def _next(self, views: frozenset[str]) -> list[_Caller]:
        """Take the readers of the next round: those that came first, if they are too many for one stop."""
        with self._lock:
            waiting = [each for each in self._waiting[views] if not each.future.cancelled()]
            self._waiting[views] = waiting[_SHARING_MAX:]
            if not waiting:
                del self._waiting[views]
        return waiting[:_SHARING_MAX]

    def _round(self, callers: Sequence[_Caller]) -> None:
        """Give readings at one epoch to readers; those who get none, and have time, take part in the next round."""
        first, *others = callers
        # All of them came before this look at the journal.
        epoch, deadline = self._newest(), max(each.deadline for each in callers)
        laggard = ""
        try:
            with self._stopped(first.targets, epoch) as stop:
                laggard, aligned = self._met(first.targets, epoch, deadline, stop)
                if aligned is not None:
                    _give(first, aligned)
                    epoch = aligned.epoch
                    laggard = "another reader took all the time"
                while others and aligned is not None:
                    aligned = self._joined(others[0].targets, epoch)
                    if aligned is not None:
                        _give(others.pop(0), aligned)
        except ViewUnavailable as error:
            _refuse(callers, error)
        now = time.monotonic()
        late = [each for each in callers if each.deadline <= now]
        _refuse(late, TimedOut(f"the views had no epoch in common in time: {laggard}"))

    def _met(
        self,
        targets: Mapping[str, Readable],
        epoch: Epoch,
        deadline: float,
        stop: Callable[[Epoch], None],
    ) -> tuple[str, Aligned | None]:
        """Return readings of all views at an epoch, or at the first one behind it; or the reason why not."""
        readings: dict[str, Reading] = {}
        laggard = ""
        try:
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
                elif position.epoch > epoch:
                    # It did not stop in time; the others can still reach its epoch.
                    epoch = position.epoch
                    stop(epoch)
                    waiting = [each for each in targets if each != name]
        except BaseException:
            Aligned(epoch, readings).close()
            raise
        if laggard:
            Aligned(epoch, readings).close()
            return laggard, None
        return "", Aligned(epoch, readings)

    def _joined(self, targets: Mapping[str, Readable], epoch: Epoch) -> Aligned | None:
        """Return further readings at the epoch at which the appliers stand; None if one of them has gone on."""
        aligned = Aligned(epoch, {})
        try:
            for name, target in targets.items():
                reading = aligned.readings[name] = self._opened(name, target)
                if reading.position is None or reading.position.epoch != epoch:
                    aligned.close()
                    return None
        except BaseException:
            aligned.close()
            raise
        return aligned

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


def _give(caller: _Caller, aligned: Aligned) -> None:
    if caller.future.set_running_or_notify_cancel():
        caller.future.set_result(aligned)
    else:
        aligned.close()


def _refuse(callers: Iterable[_Caller], error: Exception) -> None:
    for each in callers:
        if not each.future.done() and each.future.set_running_or_notify_cancel():
            each.future.set_exception(error)
