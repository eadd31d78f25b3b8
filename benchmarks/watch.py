"""The memory, the files and the bytes of a running application, looked at again and again while something else is measured."""

import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import psutil

from penstock.process import presence

_ROLES: Final = ("driver", "gateway", "view")


class Look(NamedTuple):
    """One look.

    Attributes:
        time_s: The seconds since the first look.
        memory_mb: The memory of all processes of the application that no file has, in megabytes. Shared pages count once.
        files: The number of files in the data directory.
        disk_mb: Their megabytes on the disk.
    """

    time_s: float
    memory_mb: float
    files: int
    disk_mb: float


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
        sizes = list(sizes_of(self._data).values())
        made = Look(
            time.monotonic() - self._began_s,
            memory_mb(self._data),
            sum(count for count, _ in sizes),
            sum(size for _, size in sizes) / 1e6,
        )
        self.looks.append(made)


def memory_mb(data: Path) -> float:
    """Return the memory of an application's processes, and of all that these have started; see `Look`."""
    processes: dict[int, psutil.Process] = {}
    for role in _ROLES:
        for found in presence.find(data, role):
            try:
                process = psutil.Process(found.pid)
                processes[found.pid] = process
                processes.update((each.pid, each) for each in process.children(recursive=True))
            except psutil.NoSuchProcess:
                continue
    return sum(map(_anonymous_kb, processes)) / 1e3


def _anonymous_kb(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))


def sizes_of(data: Path) -> dict[str, tuple[int, int]]:
    """Return the files and the bytes of each name in a data directory."""
    sizes: dict[str, tuple[int, int]] = {}
    for folder, _, names in os.walk(data):
        for name in names:
            path = Path(folder, name)
            try:
                blocks = path.stat().st_blocks
            except FileNotFoundError:  # it was removed meanwhile
                continue
            top = path.relative_to(data).parts[0]
            count, size = sizes.get(top, (0, 0))
            sizes[top] = count + 1, size + 512 * blocks
    return sizes
