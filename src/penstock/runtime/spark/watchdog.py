"""The watchdog: ends workers whose handlers do not end at their limit, and those that hang.

Every task notes the position that it runs, its process, and when the handler must have ended (`quarantine`). A handler
that does not end within a second of that cannot be interrupted: it is in a loop in C, or waits there. Its verdict is
recorded, and its worker is ended; so the transaction does not run again, and its epoch goes on.

A note that stays the same for too long although no handler is at fault is reported in a warning. After twice that time, and
never without the warning, its worker is killed, so that Spark runs the task again and the quarantine sees a death. A
stopped worker (SIGSTOP) may have a task without a note, and is treated in the same way. Only descendants of this process
are killed; on other hosts each `warden` has a watchdog for its worker.
"""

import logging
import re
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from penstock.process.guard import GRACE_S
from penstock.runtime.spark.quarantine import PART_OF, STEPS_OF, Note, judge, read_note

_log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"e(\d+)-(?:r(\d+)-t(\d+)|steps)\.running")
LOOK_S: Final = 0.25
"""The time between two looks."""

_OVERDUE: Final = round(GRACE_S / LOOK_S)
"""A handler that is overdue at so many looks cannot be interrupted."""

_LOOKS: Final = 4  # for stopped processes, per `stuck_s`
_STOPPED: Final = "stopped"

_Suspect = tuple[str, int, int]
"""The name of a file of notes, or `stopped`; the position, and the process."""


class Watchdog:
    """Reads the notes of all running tasks, in its own thread."""

    def __init__(self, scratch: Path, stuck_s: float) -> None:
        """Watch a directory of notes; warn after `stuck_s`, kill after twice that."""
        self._scratch = scratch
        self._stuck_s = stuck_s
        self._since: dict[_Suspect, float] = {}
        self._warned: set[_Suspect] = set()
        self._overdue: dict[_Suspect, int] = {}
        self._looked_for_stopped = float("-inf")
        self._stopped: list[int] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="penstock-watchdog", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; after the return no process is killed."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._stopping.wait(min(LOOK_S, self._stuck_s / _LOOKS)):
            try:
                self.look(time.monotonic())
            except Exception:  # noqa: BLE001 -- the watchdog continues after any error
                _log.exception("the watchdog could not read the notes")

    def look(self, now: float) -> None:
        """Read the notes once, and end what has to end; `LOOK_S` later for the next time.

        Args:
            now: Seconds that never go back.
        """
        notes = {
            (path.name, note.position, note.pid): note
            for path in self._scratch.glob("e*.running")
            if (note := read_note(path)) is not None
        }
        exceeded = {suspect: _exceeded(note, now) for suspect, note in notes.items()}
        self._overdue = {
            suspect: self._overdue.get(suspect, 0) + 1
            for suspect, setting in exceeded.items()
            if setting
        }
        for suspect, looks in self._overdue.items():
            if looks >= _OVERDUE:
                self._end(suspect, notes[suspect], exceeded[suspect], looks)
        self._look_for_hanging(
            now, {each for each, note in notes.items() if not _is_in_time(note, now)}
        )

    def _look_for_hanging(self, now: float, suspects: set[_Suspect]) -> None:
        """Warn of tasks that make no progress, and kill their workers later.

        Args:
            suspects: The tasks whose handler has no time left, or none runs.
        """
        if now - self._looked_for_stopped >= self._stuck_s / _LOOKS:  # it reads all processes
            self._looked_for_stopped, self._stopped = now, _stopped()
        running = suspects | {(_STOPPED, -1, pid) for pid in self._stopped}
        self._since = {suspect: self._since.get(suspect, now) for suspect in sorted(running)}
        self._warned &= running
        for suspect, since in self._since.items():
            if suspect in self._warned:
                if now - since >= 2 * self._stuck_s:
                    self._kill(suspect, signal.SIGKILL)
            elif now - since >= self._stuck_s:
                self._warned.add(suspect)
                _log.warning("a task makes no progress", extra=_facts(suspect))

    def _end(self, suspect: _Suspect, note: Note, setting: str, looks: int) -> None:
        """End the worker of a handler that cannot be interrupted: by a signal that shows its stack, and then by another."""
        if not _is_below(note.pid):
            return
        if looks == _OVERDUE:
            judge(self._scratch / suspect[0], note, setting)
        self._kill(suspect, signal.SIGPROF if looks == _OVERDUE else signal.SIGKILL)

    def _kill(self, suspect: _Suspect, how: signal.Signals) -> None:
        pid = suspect[2]
        if _is_below(pid):
            _log.error("a worker that makes no progress is killed", extra=_facts(suspect))
            with suppress(psutil.NoSuchProcess):
                psutil.Process(pid).send_signal(how)


def _is_in_time(note: Note, now: float) -> bool:
    return note.wall_due_ms > now * 1_000


def _exceeded(note: Note, now: float) -> str:
    """Return the bound that the handler of a note has exceeded; empty without any, or its process is stopped."""
    if not note.due_ms:
        return ""
    try:
        worker = psutil.Process(note.pid)
        if worker.status() == psutil.STATUS_STOPPED:
            return ""
        used_s = sum(
            each.user_time + each.system_time for each in worker.threads() if each.id == note.pid
        )
    except psutil.NoSuchProcess:
        return ""
    if used_s * 1_000 > note.due_ms:
        return "time_ms"
    return "" if _is_in_time(note, now) else "wall_ms"


def _is_below(pid: int) -> bool:
    """Say whether a process is a descendant of this one."""
    try:
        return psutil.Process() in psutil.Process(pid).parents()
    except psutil.NoSuchProcess:
        return False


def _stopped() -> list[int]:
    """Return the stopped descendants of this process."""
    stopped = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_STOPPED:
                stopped.append(process.pid)
    return stopped


def _facts(suspect: _Suspect) -> dict[str, int | str]:
    """Return the facts of a suspect for a log record; the task of the second pass has no round and no number."""
    name, position, pid = suspect
    match = _NAME.fullmatch(name)
    if match is None:
        return {"worker": pid}
    facts: dict[str, int | str] = {"epoch": int(match[1])}
    if match[2] is not None:
        facts |= {"round": int(match[2]), "task": int(match[3])}
    runs = "requests" if position < STEPS_OF else "workflow steps"
    return facts | {"position": position % PART_OF, "runs": runs, "worker": pid}
