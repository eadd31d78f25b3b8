"""The file of an export has its name when it is complete; unfinished files do not stay."""

import fcntl
from pathlib import Path

from penstock.cli.exchange.export_command import _Target


def test_an_export_removes_the_unfinished_file_of_one_that_was_killed(tmp_path: Path) -> None:
    """That of one that runs stays, and so do files with other names."""
    names = [
        ".out[1].csv.00c0ffee",
        ".out[1].csv.12345678",
        ".out[1].csv.old",
        ".out1.csv.00c0ffee",
    ]
    for name in names:
        (tmp_path / name).write_text("rows")
    with (tmp_path / names[1]).open("rb") as running:
        fcntl.flock(running, fcntl.LOCK_EX)
        with _Target(str(tmp_path / "out[1].csv")) as out:
            out.write(b"all rows")
    assert (tmp_path / "out[1].csv").read_bytes() == b"all rows"
    assert {path.name for path in tmp_path.iterdir()} == {"out[1].csv", *names[1:]}
