"""The command `penstock`: it runs a subcommand and turns every error into an exit code."""

import sys
from typing import Annotated, Final

import typer

from penstock.cli import error_output
from penstock.cli.commands import Commands
from penstock.errors import PenstockError
from penstock.files.private import keep_private
from penstock.history.audit_hook import refuse_other_threads

HELP: Final = """Serializable transactions over plain Python classes, on Apache Spark.

\b
Examples:
  penstock demo                                      see it work
  penstock new kiosk                                 write a first application
  penstock dev kiosk/app.py                          run it while you change it
  penstock run examples/shop --port 8000             run an application
  penstock status examples/shop                      see its processes and figures
  penstock call examples/shop Item i1 create price=3 send it a request
  penstock sql "FROM Item" examples/shop             query its entities
  penstock explain examples/shop                     see its dataflow graph
  penstock bench checkout --max --seconds 20 --json  measure
"""

DEBUG: Final = "--debug"

application: Final = typer.Typer(
    name="penstock",
    cls=Commands,
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


@application.callback()
def options(
    context: typer.Context,
    debug: Annotated[
        bool, typer.Option(DEBUG, help="Show the traceback of an error; anywhere before --.")
    ] = False,
) -> None:
    """Take the options of all commands, and make new files private, except those of a new project."""
    if context.invoked_subcommand != "new":
        keep_private()


def main() -> None:
    """Run the command that the process was started with, and exit."""
    refuse_other_threads()
    sys.exit(execute(sys.argv[1:]))


def execute(arguments: list[str]) -> int:
    """Run a command and return its exit code.

    The codes: 0 success, 2 the caller must change something, 3 the reply is an error, 130 interrupted,
    1 any other error.
    """
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    debug = DEBUG in words
    rest = [word for word in words if word != DEBUG] + arguments[len(words) :]
    try:
        application(rest, prog_name="penstock")
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 0
    except PenstockError as error:
        if debug:
            raise
        error_output.show(error)
        return error_output.exit_code_of(error)
    except KeyboardInterrupt:
        return error_output.INTERRUPTED
    except Exception as error:
        if debug:
            raise
        error_output.show(error)
        return error_output.OTHER_ERROR
    return 0
