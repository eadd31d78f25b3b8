"""The progress of generators on disk, for displays in other processes.

The process that runs a generator writes `run/generators/NAME.json` about once a second. These files are hints: the
position of a generator follows from the ids of its appends in the log, and a file that is lost loses nothing.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from penstock.files.hint_file import read_hint, write_hint
from penstock.files.layout import RUN

ROLE: Final = "generator"
"""The role of a process that runs generators."""

RUNNING: Final = "running"
STOPPED: Final = "stopped"
"""The status of a generator whose process has ended before the generator."""

_FOLDER: Final = "generators"


class GeneratorProgress(msgspec.Struct, frozen=True):
    """The progress of a generator.

    Attributes:
        status: `running`, `finished`, `failed` or `stopped`.
        atoms: The number of its atoms that are on the stream.
        events: The number of events that its process has appended.
        place: The file and the line that was read last; empty for another source.
        share: The part of the file that was read, from 0 to 1; None if it is not known.
        reason: Why it has failed; empty if it has not.
    """

    generator: str
    stream: str
    status: str
    atoms: int
    events: int
    place: str
    share: float | None
    reason: str
    pid: int = 0


def write_progress(data: Path, progress: Sequence[GeneratorProgress]) -> None:
    """Write the progress of generators that this process runs; on a full disk the files stay as they were."""
    for generator in progress:
        write_hint(data / RUN / _FOLDER / f"{generator.generator}.json", generator)


def read_progress(data: Path) -> list[GeneratorProgress]:
    """Return the progress of all generators that have run on a data directory, in the order of their names."""
    from penstock.process import presence  # noqa: PLC0415 -- psutil, which a command's help does not need

    running = {process.pid for process in presence.find(data, ROLE)}
    return [
        msgspec.structs.replace(progress, status=STOPPED)
        if progress.status == RUNNING and progress.pid not in running
        else progress
        for progress in _read(data / RUN / _FOLDER)
    ]


def _read(folder: Path) -> Iterator[GeneratorProgress]:
    for path in sorted(folder.glob("*.json")):
        if (progress := read_hint(path, GeneratorProgress)) is not None:
            yield progress
