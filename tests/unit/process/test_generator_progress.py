"""The progress of generators: it is read as it was written, and a process that is gone runs nothing."""

import os
from pathlib import Path

from penstock.process import presence
from penstock.process.generator_progress import (
    ROLE,
    GeneratorProgress,
    read_progress,
    write_progress,
)


def progress_of(name: str, status: str, pid: int) -> GeneratorProgress:
    return GeneratorProgress(name, "numbers", status, 7, 70, "", None, "", pid)


def test_progress_is_read_by_other_processes(tmp_path: Path) -> None:
    """Generators of several processes are together; those of a process that is gone are stopped."""
    assert read_progress(tmp_path) == []
    here = progress_of("here", "running", os.getpid())
    gone, done = progress_of("gone", "running", -1), progress_of("done", "finished", -1)
    with presence.present(tmp_path, ROLE, "app"):
        write_progress(tmp_path, [here])
        write_progress(tmp_path, [gone, done])
        (tmp_path / "run" / "generators" / "torn.json").write_text("{")
        assert [(one.generator, one.status) for one in read_progress(tmp_path)] == [
            ("done", "finished"),
            ("gone", "stopped"),
            ("here", "running"),
        ]
        write_progress(tmp_path, [progress_of("here", "finished", os.getpid())])
        assert read_progress(tmp_path)[2].status == "finished"


def test_full_disk_ends_no_generator(tmp_path: Path) -> None:
    """The files are for displays; a process that cannot write them goes on."""
    folder = tmp_path / "run" / "generators"
    write_progress(tmp_path, [progress_of("here", "running", -1)])
    (folder / f"here.{os.getpid()}").mkdir()  # in the place of the file that is written first
    write_progress(tmp_path, [progress_of("here", "finished", -1)])
    assert [one.status for one in read_progress(tmp_path)] == ["stopped"]
