"""The check of an application's source: whether it can run, and the warnings of its analysis.

`penstock dev` checks a changed source in a child process, which imports the new code.
"""

import logging
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from penstock.cli.error_output import text_of
from penstock.dataflow.analysis.analyze import analyze_app
from penstock.deployment.loading import load_app
from penstock.model.application import App
from penstock.process.data_directory import DataDirectory
from penstock.process.question import ChildEnded, answer_question, ask_child

SHOWN_MAX: Final = 20

_log = logging.getLogger(__name__)


class SourceQuestion(msgspec.Struct, frozen=True):
    """The application to check, and the data directory with its stored entities."""

    app: str
    data: Path


class SourceCheck(msgspec.Struct, frozen=True):
    """The result of a check.

    Attributes:
        error: Why the application cannot run; empty if it can.
        warnings: The warnings of its source, a line each.
    """

    error: str
    warnings: list[str] = []


def warnings_of(app: App) -> list[str]:
    """Return the first warnings of an application's source, a line each."""
    try:
        warnings = analyze_app(app).warnings
    except Exception:  # noqa: BLE001 -- an application runs even if its source cannot be analysed
        _log.exception("the source could not be checked")
        return []
    lines = [warning.text for warning in warnings[:SHOWN_MAX]]
    more = len(warnings) - len(lines)
    return [*lines, f"and {more:,} more; penstock explain shows them"] if more else lines


def check(app: str, data: Path) -> SourceCheck:
    """Check the present source of an application, and its stored entities, in a child process."""
    try:
        return ask_child(
            "penstock.cli.running.source_check", SourceQuestion(app, data), SourceCheck
        )
    except ChildEnded as ended:  # its own words are above, on standard error
        return SourceCheck(f"its check ended with exit code {ended.exit_code}")


def _checked(question: SourceQuestion, _: BinaryIO) -> SourceCheck:
    try:
        app = load_app(question.app)
        DataDirectory(question.data).check_app(app)
        return SourceCheck("", warnings_of(app))
    except Exception as error:  # noqa: BLE001 -- the parent shows the error
        return SourceCheck(text_of(error))


if __name__ == "__main__":
    answer_question(SourceQuestion, _checked)
