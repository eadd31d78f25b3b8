"""The watchdog: names what makes no progress, and frees an epoch from a worker that hangs.

Every task notes which position it runs and in which process (`quarantine`). A note that stays the
same for too long is named in a warning; when it stays for twice as long, its worker is killed, so
that Spark runs the task again and the quarantine sees a death. A worker that somebody has stopped
(SIGSTOP) may have taken a task without a note, and is treated alike. Only processes below this one
are killed; a worker on another host is only named.
"""

import logging
import re
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from penstock.runtime.spark.quarantine import Note, read_note

_log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"e(\d+)-r(\d+)-t(\d+)\.running")
_LOOKS: Final = 4  # in the time after which a task is named
_STOPPED: Final = "stopped"

_Suspect = tuple[str, Note]
"""A file of notes, or `stopped`, and what it says."""


class Watchdog:
    """Looks at the notes of all running tasks, in a thread of its own."""

    def __init__(self, scratch: Path, stuck_s: float) -> None:
        """Watch a directory of notes; warn after `stuck_s`, kill after twice that."""
        self._scratch = scratch
        self._stuck_s = stuck_s
        self._since: dict[_Suspect, float] = {}
        self._warned: set[_Suspect] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="penstock-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End; returns when nothing will be killed any more."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._stopping.wait(self._stuck_s / _LOOKS):
            try:
                self._look(time.monotonic())
            except Exception:  # noqa: BLE001 -- whatever it is, the watch goes on
                _log.exception("the watchdog could not look")

    def _look(self, now: float) -> None:
        running = {
            (path.name, note)
            for path in self._scratch.glob("e*.running")
            if (note := read_note(path)) is not None
        } | {(_STOPPED, Note(-1, pid)) for pid in _stopped()}
        self._since = {one: self._since.get(one, now) for one in sorted(running)}
        self._warned &= running
        for one, since in self._since.items():
            if now - since >= 2 * self._stuck_s:
                self._kill(*one)
            elif now - since >= self._stuck_s and one not in self._warned:
                self._warned.add(one)
                _log.warning("a task makes no progress", extra=_facts(*one))

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
    """Return the processes below this one that are stopped."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_STOPPED:
                found.append(process.pid)
    return found


def _facts(name: str, note: Note) -> dict[str, int]:
    if name == _STOPPED:
        return {"worker": note.pid}
    found = _NAME.fullmatch(name)
    assert found is not None, name
    epoch, round_number, task = map(int, found.groups())
    return {
        "epoch": epoch,
        "round": round_number,
        "task": task,
        "position": note.position,
        "worker": note.pid,
    }
