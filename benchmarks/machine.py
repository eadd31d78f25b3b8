"""What has to be known about a machine to read its figures, and how its benchmarks are run."""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil

TOP: Final = Path(__file__).parent.parent
TIMEOUT_S: Final = 900
SYNCS: Final = 200
BLOCK: Final = bytes(4_096)
LOOK_S: Final = 2.0
BUSY_PERCENT: Final = 10


def machine(directory: Path) -> dict[str, Any]:
    """Describe this machine, and the disk on which a directory lies."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": _commit(),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "fdatasync_ms": round(_fdatasync_ms(directory), 3),
        "busy_percent": busy_percent(),
    }


def busy_percent() -> float:
    """Return how much of the processors is in use during this call."""
    return float(psutil.cpu_percent(interval=LOOK_S))


def require_idle() -> None:
    """Refuse to measure figures for docs on a machine that does something else.

    Raises:
        SystemExit: It does; the message says how much.
    """
    if (busy := busy_percent()) > BUSY_PERCENT:
        raise SystemExit(
            f"other programs use {busy:.0f} % of the processors; figures for docs are measured "
            f"where they use at most {BUSY_PERCENT} %. Stop them, or leave out --update-docs"
        )


def figures_of(
    command: Sequence[str | Path], messages: Path, directory: Path = TOP
) -> dict[str, Any]:
    """Run a benchmark; return the JSON object that its last line is.

    A benchmark that found its own results wrong ends with 1 but prints them all the same: its row
    then says that it was not right. Its standard error goes to the file `messages`; it runs in
    `directory`.

    Raises:
        RuntimeError: It printed no JSON object; the message has the end of `messages`.
    """
    with messages.open("w") as file:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            cwd=directory,
        )
    lines = done.stdout.strip().splitlines()
    if done.returncode not in (0, 1) or not lines or not lines[-1].startswith("{"):
        told = messages.read_text()[-2_000:]
        raise RuntimeError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{told}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def module(name: str, *arguments: str | Path) -> list[str | Path]:
    """Return the command of a program of this directory."""
    return [sys.executable, "-m", f"benchmarks.{name}", *arguments]


def _commit() -> str:
    """Return the short name of the commit, with a `+` when files other than docs differ from it."""
    name = ["git", "rev-parse", "--short", "HEAD"]
    changed = ["git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs"]
    try:
        found, differs = (
            subprocess.check_output(ask, text=True, cwd=TOP, stderr=subprocess.DEVNULL).strip()
            for ask in (name, changed)
        )
    except (OSError, subprocess.CalledProcessError):
        return "no commit"
    return f"{found}+" if differs else found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _fdatasync_ms(directory: Path) -> float:
    taken = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(BLOCK)
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter() - began) * 1_000)
    return median(taken)
