"""The check of an application's source: whether it can run, and the warnings of its analysis.

`penstock dev` checks a changed source in a child process, which imports the new code:

    python -m penstock.cli.running.source_check < SourceQuestion > SourceCheck
"""

import logging
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

from penstock.cli.error_output import text_of
from penstock.dataflow.analysis.analyze import analyze_app
from penstock.deployment.loading import load_app
from penstock.model.application import App
from penstock.process.data_directory import DataDirectory
from penstock.process.question import encode_question, receive_question

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
    child = subprocess.run(
        [sys.executable, "-P", "-m", "penstock.cli.running.source_check"],
        input=encode_question(SourceQuestion(app, data)),
        capture_output=True,
        check=False,
    )
    if child.returncode:
        return SourceCheck(
            f"its check ended with exit code {child.returncode}:\n"
            f"{child.stderr.decode(errors='replace').strip()}"
        )
    return msgspec.msgpack.decode(child.stdout, type=SourceCheck)


def main() -> None:
    """Answer the question on standard input."""
    question, answer_file = receive_question(SourceQuestion)
    try:
        app = load_app(question.app)
        DataDirectory(question.data).check_app(app)
        answer = SourceCheck("", warnings_of(app))
    except Exception as error:  # noqa: BLE001 -- the parent shows the error
        answer = SourceCheck(text_of(error))
    with answer_file:
        answer_file.write(msgspec.msgpack.encode(answer))


if __name__ == "__main__":
    main()
