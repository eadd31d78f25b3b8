"""The memory, the processor time, the files and the bytes of a running application, looked at again and again while something else is measured."""

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import psutil

from penstock.process import presence

_MODULES: Final = {
    "penstock.runtime.spark.daemon": "tasks",
    "penstock.runtime.reads.nursery": "readers",
    "penstock.retention.maintenance": "maintenance",
}
"""The names of processes that no presence names, by the module that they run."""

ENDED: Final = "ended processes"


class Look(NamedTuple):
    """One look.

    Attributes:
        time_s: The seconds since the first look.
        memory: For each process by its name, its memory that no file has, in megabytes. Shared pages count once in the sum.
        cpu_s: For each process, the seconds of processor time until now.
        disk: For each name in the data directory, the number of files, and their megabytes on the disk.
    """

    time_s: float
    memory: dict[str, float]
    cpu_s: dict[str, float]
    disk: dict[str, tuple[int, float]]

    @property
    def memory_mb(self) -> float:
        """The memory of all processes."""
        return sum(self.memory.values())

    @property
    def files(self) -> int:
        """The number of all files."""
        return sum(count for count, _ in self.disk.values())

    @property
    def disk_mb(self) -> float:
        """The megabytes of all files."""
        return sum(size for _, size in self.disk.values())


class Watch:
    """Looks at the application of a data directory every so many seconds, in a thread, while the block runs."""

    def __init__(self, data: Path, every_s: float = 2.0) -> None:
        self._data = data
        self._every_s = every_s
        self._began_s = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.looks: list[Look] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def memory_mb(self) -> float:
        """The most memory of all looks."""
        return max(look.memory_mb for look in self.looks)

    def _run(self) -> None:
        while True:
            self.look()
            if self._ended.wait(self._every_s):
                return

    def look(self) -> None:
        """Look now."""
        time_s = time.monotonic() - self._began_s
        memory: dict[str, float] = defaultdict(float)
        cpu_s: dict[str, float] = defaultdict(float)
        for name, process in processes_of(self._data):
            with suppress(psutil.Error):  # it has ended
                times = process.cpu_times()
                memory[name] += anonymous_kb(process.pid) / 1e3
                cpu_s[name] += times.user + times.system
                cpu_s[ENDED] += times.children_user + times.children_system
        disk = {name: (count, size / 1e6) for name, (count, size) in sizes_of(self._data).items()}
        self.looks.append(Look(time_s, dict(memory), dict(cpu_s), disk))


def processes_of(data: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Yield the processes of an application, and all that these have started, each with its name."""
    seen: set[int] = set()
    # The supervisor has started all others, so it comes last.
    for role in sorted(presence.ROLES, key="supervisor".__eq__):
        for found in presence.find(data, role):
            with suppress(psutil.Error):  # it has ended
                process = psutil.Process(found.pid)
                for each in (process, *process.children(recursive=True)):
                    if each.pid not in seen:
                        seen.add(each.pid)
                        yield _name_of(each, role), each


def _name_of(process: psutil.Process, role: str) -> str:
    """Return the name of a process that a process of a role has started, or is; a fork has the role of its parent."""
    try:
        words = process.cmdline()
    except psutil.Error:  # it has ended
        return role
    if words and Path(words[0]).name == "java":
        return "Java"
    return next((name for module, name in _MODULES.items() if module in words), role)


def anonymous_kb(pid: int) -> int:
    """Return the memory of a process that no file has: its own, and its share of what it shares; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))


def sizes_of(data: Path) -> dict[str, tuple[int, int]]:
    """Return the files and the bytes of each name in a data directory."""
    sizes: dict[str, tuple[int, int]] = {}
    for entry in os.scandir(data):
        count = size = 0
        for each in _files_of(entry):
            with suppress(FileNotFoundError):  # it was removed meanwhile
                size += 512 * each.stat(follow_symlinks=False).st_blocks
                count += 1
        if count:
            sizes[entry.name] = count, size
    return sizes


def _files_of(entry: os.DirEntry[str]) -> Iterator[os.DirEntry[str]]:
    """Yield the files in a folder and below it; a file itself."""
    if not entry.is_dir(follow_symlinks=False):
        yield entry
        return
    with suppress(FileNotFoundError), os.scandir(entry) as entries:
        for each in entries:
            yield from _files_of(each)
