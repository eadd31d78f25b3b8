"""The watchdog: reports tasks without progress, and kills workers that hang.

Every task notes the position that it runs and its process (`quarantine`). A note that stays the same
for too long is reported in a warning. After twice that time, and never without the warning, its worker is
killed, so that Spark runs the task again and the quarantine sees a death. A stopped worker (SIGSTOP) may
have a task without a note, and is treated in the same way. Only descendants of this process are killed; a
worker on another host is only reported.
"""

import logging
import re
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from penstock.runtime.spark.quarantine import PART_OF, STEPS_OF, Note, read_note

_log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"e(\d+)-(?:r(\d+)-t(\d+)|steps)\.running")
_LOOKS: Final = 4  # per `stuck_s`
_STOPPED: Final = "stopped"

_Suspect = tuple[str, Note]
"""The name of a file of notes, or `stopped`; and the note."""


class Watchdog:
    """Reads the notes of all running tasks, in its own thread."""

    def __init__(self, scratch: Path, stuck_s: float) -> None:
        """Watch a directory of notes; warn after `stuck_s`, kill after twice that."""
        self._scratch = scratch
        self._stuck_s = stuck_s
        self._since: dict[_Suspect, float] = {}
        self._warned: set[_Suspect] = set()
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
        while not self._stopping.wait(self._stuck_s / _LOOKS):
            try:
                self._look(time.monotonic())
            except Exception:  # noqa: BLE001 -- the watchdog continues after any error
                _log.exception("the watchdog could not read the notes")

    def _look(self, now: float) -> None:
        running = {
            (path.name, note)
            for path in self._scratch.glob("e*.running")
            if (note := read_note(path)) is not None
        } | {(_STOPPED, Note(-1, pid)) for pid in _stopped()}
        self._since = {suspect: self._since.get(suspect, now) for suspect in sorted(running)}
        self._warned &= running
        for suspect, since in self._since.items():
            if suspect in self._warned:
                if now - since >= 2 * self._stuck_s:
                    self._kill(*suspect)
            elif now - since >= self._stuck_s:
                self._warned.add(suspect)
                _log.warning("a task makes no progress", extra=_facts(*suspect))

    def _kill(self, name: str, note: Note) -> None:
        try:
            worker = psutil.Process(note.pid)
            if psutil.Process() not in worker.parents():
                return
            _log.error("a worker that makes no progress is killed", extra=_facts(name, note))
            worker.kill()
        except psutil.NoSuchProcess:
            return


def _stopped() -> list[int]:
    """Return the stopped descendants of this process."""
    stopped = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_STOPPED:
                stopped.append(process.pid)
    return stopped


def _facts(name: str, note: Note) -> dict[str, int | str]:
    """Return the facts of a suspect for a log record; the task of the second pass has no round and no number."""
    match = _NAME.fullmatch(name)
    if match is None:
        return {"worker": note.pid}
    facts: dict[str, int | str] = {"epoch": int(match[1])}
    if match[2] is not None:
        facts |= {"round": int(match[2]), "task": int(match[3])}
    runs = "requests" if note.position < STEPS_OF else "workflow steps"
    return facts | {"position": note.position % PART_OF, "runs": runs, "worker": note.pid}
