"""Quarantine: finds a transaction that kills its worker process, and sets it aside.

A task notes the position that it runs, and its process id, in a small shared file that survives the
process. If the task dies, Spark runs it again, and the new attempt finds the note: the position is
suspect. A position that was suspect at two deaths of the same task does not run a third time; it is
recorded as failed. A death that the watchdog has decided needs no second one: it leaves its verdict, which says the
limit that the transaction has exceeded. Each request that a handler has sent, and each workflow step, is a part of its record with a note
of its own, so it fails alone.

Linux's out-of-memory killer selects a process by its size, not by the transaction that it runs. So
after a death the growth of the process is measured for each transaction, and a death by the
out-of-memory killer accuses the transaction with the largest growth.
"""

import mmap
import os
import re
import resource
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

from penstock.engine.failure import exceeded
from penstock.engine.limits import TimeLimit
from penstock.engine.streams.cascade_runner import QUEUE
from penstock.model.request import Failure

DEATHS: Final = 2
"""Deaths of its worker that accuse a transaction; one death can be an accident."""

PART_OF: Final = 1 << 32
"""Added to the position of a record in notes, times the number of the sent request or the workflow step that runs."""

STEPS_OF: Final = 1 << 61
"""Added to the position of a record in notes while its workflow steps run."""

PARTS_MAX: Final = 3
"""Parts of one record that may kill their workers; then the sent requests, or the steps, behind them do not run."""

QUARANTINED: Final = exceeded("quarantined: its worker process died twice while it ran")
"""The failure of a request or a step at whose run its worker has died twice."""

_VERDICTS: Final = "verdicts"
_NUMBER_MAX: Final = (1 << 28) - 2
_QUEUE_NUMBER: Final = _NUMBER_MAX + 1  # in notes, of the queue of steps

_IDLE: Final = -1
_NOTE: Final = struct.Struct("=9q")  # the fields of `Note`
_NO_POSITION: Final = -1
_GROWN_BYTES: Final = 64 << 20
"""A transaction with less growth than this is not accused of it."""

_VMSTAT: Final = Path("/proc/vmstat")
_KILLS: Final = b"\noom_kill "
_STATM: Final = Path("/proc/self/statm")


class Note(NamedTuple):
    """The work that a process runs, or ran when it died.

    Attributes:
        position: The position of the transaction in its epoch; `PART_OF` and `STEPS_OF` are added for parts.
        grown: The position whose transaction made the process grow most; -1 for none.
        kills: Processes that the out-of-memory killer had killed when the note was made, at the begin of the task or before.
        due_ms: When the handler must have ended, in milliseconds of the processor time of its main thread; 0: at no time.
        wall_due_ms: When it must have ended by the monotonic clock; 0: at no time.
    """

    position: int
    pid: int
    grown: int = _NO_POSITION
    kills: int = 0
    due_ms: int = 0
    wall_due_ms: int = 0
    time_ms: int = 0
    wall_ms: int = 0
    is_declared: int = 0

    @property
    def limit(self) -> TimeLimit:
        """The limit of the handler that runs."""
        return TimeLimit(self.time_ms, self.wall_ms, bool(self.is_declared))


def write_note(path: Path, note: Note) -> mmap.mmap:
    """Write the note of a task, and return the memory that changes it."""
    with open(path, "w+b", buffering=0) as file:  # noqa: PTH123 -- each task of each epoch has a note
        file.write(_NOTE.pack(*note))
        return mmap.mmap(file.fileno(), _NOTE.size)


def read_note(path: Path) -> Note | None:
    """Return the note of a task; None if it runs no transaction."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(data) != _NOTE.size:
        return None
    note = Note._make(_NOTE.unpack(data))
    return None if note.position == _IDLE else note


def memory_kills() -> int:
    """Return the number of processes that the out-of-memory killer has killed; 0 where unknown."""
    try:
        lines = _VMSTAT.read_bytes()
    except OSError:
        return 0
    at = lines.find(_KILLS)  # each task asks, and an expression would take half of its time
    return 0 if at < 0 else int(lines[at + len(_KILLS) : lines.find(b"\n", at + 1)])


def _own_bytes() -> int:
    """Return the bytes of this process's private memory; 0 where unknown."""
    try:
        _, resident, shared, *_ = map(int, _STATM.read_text().split())
    except OSError:
        return 0
    return (resident - shared) * resource.getpagesize()


def condemned_in(scratch: Path, epoch: int) -> int:
    """Return the number of positions of an epoch that the notes in a directory exclude."""
    died = (_died_twice(path) for path in scratch.glob(f"e{epoch}-*.deaths"))
    return sum(map(len, died)) + len(_verdicts(scratch, epoch))


def judge(path: Path, note: Note, setting: str) -> None:
    """Record that a clock has decided about the transaction of a note: it does not run again, in any task of its epoch.

    Args:
        setting: The bound that the transaction has exceeded: `time_ms` or `wall_ms`.
    """
    words = _epoch_of(path), note.position, setting, note.time_ms, note.wall_ms, note.is_declared
    with (path.parent / _VERDICTS).open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


def _epoch_of(path: Path) -> str:
    """Return the epoch of a file of notes: `4` of `e4-r2-t1.running`."""
    return path.name.partition("-")[0][1:]


def _verdicts(scratch: Path, epoch: int | str) -> dict[int, Failure]:
    """Return the failures of the transactions of an epoch about which a clock has decided, by position."""
    try:
        lines = (scratch / _VERDICTS).read_text().splitlines()
    except FileNotFoundError:
        return {}
    verdicts = {}
    for line in lines:
        of_epoch, position, setting, time_ms, wall_ms, is_declared = line.split()
        if of_epoch == str(epoch):
            limit = TimeLimit(int(time_ms), int(wall_ms), is_declared == "1")
            what = "a workflow step" if int(position) & STEPS_OF else "the handler"
            why = limit.exceeded(what, setting)
            verdicts[int(position)] = exceeded(
                f"{why}; it could not be interrupted, and its process was ended"
            )
    return verdicts


def _suspects(deaths: Path) -> list[int]:
    """Return the suspect position of each death."""
    try:
        return [int(word) for word in deaths.read_text().split()]
    except FileNotFoundError:
        return []


def _died_twice(deaths: Path) -> frozenset[int]:
    counts = Counter(_suspects(deaths))
    return frozenset(
        position
        for position, times in counts.items()
        if times >= DEATHS and position != _NO_POSITION
    )


def _last_parts(poisoned: Iterable[int]) -> dict[int, int]:
    """Return the last part that may run, for the sent requests or the steps of a record with too many poisoned ones."""
    parts: dict[int, list[int]] = {}
    for noted in sorted(poisoned):
        if noted % STEPS_OF // PART_OF == _QUEUE_NUMBER:
            continue
        parts.setdefault(noted % PART_OF + (noted & STEPS_OF), []).append(noted)
    return {record: noted[-1] for record, noted in parts.items() if len(noted) >= PARTS_MAX}


def deaths_noted(scratch: Path) -> int:
    """Return a number that grows with each death noted in a directory."""
    return sum(path.stat().st_size for path in scratch.glob("*.deaths"))


# A task on another host has its notes there, because it writes one for each transaction. What they say about a death goes to
# the driver, whose scratch has the deaths of all hosts, and goes with the next command of the epoch to whichever host runs it.
# A file travels as its name and its text.


_TRAVELS: Final = re.compile(r"e\d+-[-\w]+\.deaths|verdicts")


def left_deaths(folder: Path, known: Mapping[str, str]) -> dict[str, str]:
    """Return what the notes in a directory say about the death of its worker.

    Args:
        known: The files that the driver has sent there.
    """
    deaths = {}
    for path in folder.glob("e*.running"):
        if (left := read_note(path)) is not None:
            suspects = path.with_suffix(".deaths")
            deaths[suspects.name] = f"{accused_of(left, memory_kills, suspects.exists())} "
    with suppress(FileNotFoundError):
        new = (folder / _VERDICTS).read_text().removeprefix(known.get(_VERDICTS, ""))
        if new:
            deaths[_VERDICTS] = new
    return deaths


def add_deaths(scratch: Path, deaths: Mapping[str, str], epoch: int) -> None:
    """Add to the notes in a directory what those of another host say about deaths; only the present epoch needs them."""
    for name, text in deaths.items():
        if _TRAVELS.fullmatch(name) and (name == _VERDICTS or _epoch_of(Path(name)) == str(epoch)):
            with (scratch / name).open("a") as file:
                file.write(text)


def deaths_of(scratch: Path, epoch: int) -> dict[str, str]:
    """Return the notes in a directory about the deaths of an epoch, for another host."""
    deaths = {path.name: path.read_text() for path in scratch.glob(f"e{epoch}-*.deaths")}
    with suppress(FileNotFoundError):
        lines = (scratch / _VERDICTS).read_text().splitlines(keepends=True)
        if here := "".join(line for line in lines if line.startswith(f"{epoch} ")):
            deaths[_VERDICTS] = here
    return deaths


def put_deaths(folder: Path, deaths: Mapping[str, str]) -> None:
    """Write the notes that the driver has sent, and no others, into a directory."""
    for path in [*folder.glob("e*"), folder / _VERDICTS]:
        path.unlink(missing_ok=True)
    for name, text in deaths.items():
        if _TRAVELS.fullmatch(name):
            (folder / name).write_text(text)


def accused_of(left: Note, kills: Callable[[], int], is_again: bool) -> int:  # noqa: FBT001
    """Return the position that a death accuses: the running one, or that with most growth.

    Args:
        left: The note of the worker that has died.
        kills: As `memory_kills`.
        is_again: Whether the same task had died before; then each transaction was measured.
    """
    if kills() <= left.kills:
        return left.position
    if left.grown != _NO_POSITION:
        return left.grown
    return left.position if is_again else _NO_POSITION


class NextNote:
    """The note of the task that a worker probably runs next; it is made before, so the task does not wait for a new file.

    Each change of a folder may wait for an fsync of another process, and the count of kills takes the kernel 0.1 ms. The count is of
    the time before the task: a kill of some process in between may cost one more attempt, before a death accuses its request.

    Args:
        kills: As `memory_kills`.
    """

    def __init__(self, kills: Callable[[], int] = memory_kills) -> None:
        self._kills = kills
        self._path: Path | None = None
        self._map: mmap.mmap | None = None
        self._file = 0

    def make(self, path: Path) -> None:
        """Make the note of a task, and remove the former one; no note where the disk is full."""
        former, self._path = self._path, path
        self._close()
        with suppress(OSError):
            if former is not None:
                former.unlink(missing_ok=True)
            self._map = write_note(path, Note(_IDLE, os.getpid(), kills=self._kills()))
            self._file = path.stat().st_ino

    def take(self, path: Path) -> mmap.mmap | None:
        """Return the memory of the note of a task; None if there is no such note, or another process has used its name."""
        note = self._map
        if note is None or path != self._path:
            return None
        try:
            is_named = path.stat().st_ino == self._file
        except OSError:
            is_named = False
        left = Note._make(_NOTE.unpack(note))
        if is_named and left.position == _IDLE and left.pid == os.getpid():
            self._map = None
            return note
        self._close()
        return None

    def _close(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None


class Quarantine:
    """The notes of one task of one round, and those of its earlier attempts.

    Attributes:
        poisoned: The failures of the positions that must not run again.
        careful: The task has died before, so the caller must `measure` each transaction.
        now: `now[0] = position` notes the position that runs.
    """

    def __init__(
        self,
        path: Path,
        kills: Callable[[], int] = memory_kills,
        ready: NextNote | None = None,
    ) -> None:
        """Use `path` for the note, and the same name with `.deaths` for the suspects.

        Args:
            ready: A note that may be that of this task; then no file is made, and `NextNote.make` removes it.
        """
        self._path = path
        self._ready = ready
        self._stays = False
        self._deaths = path.with_suffix(".deaths")
        self._kills = kills
        self._bytes = self._growth = 0
        self._last: dict[int, int] = {}
        self.poisoned: dict[int, Failure] = {}
        self.careful = False

    def __enter__(self) -> Self:
        """Read the notes of earlier attempts."""
        note = None if self._ready is None else self._ready.take(self._path)
        self._stays = note is not None
        left = read_note(self._path) if note is None else None  # else it is new
        if left is not None:
            accused = accused_of(left, self._kills, self._deaths.exists())
            suspects = [*_suspects(self._deaths), accused]
            self._deaths.write_text(" ".join(map(str, suspects)))
        self.poisoned = dict.fromkeys(_died_twice(self._deaths), QUARANTINED)
        self.careful = self._deaths.exists()
        if self.careful:
            self._bytes = _own_bytes()
        self.poisoned |= _verdicts(self._path.parent, _epoch_of(self._path))
        self._last = _last_parts(self.poisoned)
        if note is None:
            note = write_note(self._path, Note(_IDLE, os.getpid(), kills=self._kills()))
        self._map = note
        self.now = memoryview(self._map).cast("q")
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self.now[0] = _IDLE
        self.now.release()
        self._map.close()
        if error_type is None and not self._stays:
            self._path.unlink(missing_ok=True)

    def note_due(self, limit: TimeLimit, due_ms: int, wall_due_ms: int) -> None:
        """Note when the handler that runs must have ended; see `Note`."""
        now = self.now
        now[4], now[5] = 0, 0  # the watchdog never reads one bound of each of two handlers
        now[6], now[7], now[8] = limit
        now[4], now[5] = due_ms, wall_due_ms

    def refusal_of_request(self, number: int) -> Failure | None:
        """Note the sent request that runs next, by its number; return its failure if it must not run."""
        return self._refusal(self.now[0] % PART_OF, min(number, _NUMBER_MAX))

    def refusal_of_step(self, number: int) -> Failure | None:
        """Note the workflow step that runs next, as `refusal_of_request` does.

        0 is the work before and after all steps, and `QUEUE` is the work on the queue of steps.
        """
        number = _QUEUE_NUMBER if number == QUEUE else min(number, _NUMBER_MAX)
        return self._refusal(self.now[0] % PART_OF + STEPS_OF, number)

    def _refusal(self, record: int, number: int) -> Failure | None:
        if self.careful:
            self.measure()
        self.now[0] = noted = record + PART_OF * number
        if not self.poisoned:
            return None
        failure = self.poisoned.get(noted)
        if number == _QUEUE_NUMBER:
            return failure
        failure = failure or self.poisoned.get(record)
        if failure is None and noted > self._last.get(record, noted):
            failure = QUARANTINED
        return failure

    def measure(self) -> None:
        """Note the growth of the process by the transaction that has ended."""
        position = self.now[0]
        before, self._bytes = self._bytes, _own_bytes()
        if (growth := self._bytes - before) > max(self._growth, _GROWN_BYTES):
            self._growth = growth
            self.now[2] = position
