"""The compiler's warnings, as `penstock run` and `penstock dev` show them before anything runs."""

import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from penstock.dataflow.analysis.analyze import analyze_app
from penstock.dataflow.graph import PlanWarning
from penstock.model.application import App

SHOWN_MAX: Final = 20

_log = logging.getLogger(__name__)


class _Document(msgspec.Struct, frozen=True):
    """The part of a plan's JSON that holds its warnings."""

    warnings: list[PlanWarning]


class Checked(msgspec.Struct, frozen=True):
    """The state of an application on disk.

    Attributes:
        complaint: Why it cannot run; empty if it can.
        cautions: A line for each warning of its source.
    """

    complaint: str
    cautions: list[str]


def cautions_of(app: App) -> list[str]:
    """Return a line for each warning of an application's source; the first ones."""
    try:
        return _lines(analyze_app(app).warnings)
    except Exception:  # noqa: BLE001 -- a source that the compiler cannot follow runs all the same
        _log.exception("the source could not be checked")
        return []


def check(app: str, data: Path) -> Checked:
    """Check an application as it is on disk now, also against its data, in a process of its own."""
    explain = ["explain", app, "--format", "json", "--data", str(data)]
    done = subprocess.run(  # noqa: S603 -- this very program
        [sys.executable, "-P", "-m", "penstock", *explain],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return Checked(done.stderr.strip(), [])
    plan = done.stdout[done.stdout.find("{") :]  # an application may print while it is imported
    try:
        return Checked("", _lines(msgspec.json.decode(plan, type=_Document).warnings))
    except msgspec.MsgspecError:
        return Checked("", [])


def _lines(cautions: Sequence[PlanWarning]) -> list[str]:
    lines = [one.text for one in cautions[:SHOWN_MAX]]
    more = len(cautions) - len(lines)
    return [*lines, f"and {more:,} more; penstock explain shows them"] if more else lines
