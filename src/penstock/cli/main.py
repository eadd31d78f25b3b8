"""The command `penstock`: it runs a subcommand and turns every error into an exit code."""

import os
import sys
from typing import Annotated, Final

import typer
from msgspec import structs

from penstock.base.start import end_with
from penstock.cli import error_output
from penstock.cli.commands import Commands
from penstock.cli.completion import join_words
from penstock.cli.error_output import ErrorDescription
from penstock.cli.help_page import is_help_page
from penstock.cli.missing_package import message_and_hint
from penstock.errors import ConfigError
from penstock.files.private import keep_private
from penstock.history.audit_hook import refuse_other_threads
from penstock.process.open_files import raise_limit

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
JSON: Final = "--json"
COMPLETE: Final = "_PENSTOCK_COMPLETE"
"""The environment variable by which a shell asks for a completion."""

application: Final = typer.Typer(
    name="penstock",
    cls=Commands,
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 -- a callback of typer
    if wanted:
        from importlib.metadata import version  # it takes long to load

        from penstock.native.choice import describe

        sys.stdout.write(f"penstock {version('penstock')}\ntransactions run {describe()}\n")
        raise typer.Exit


@application.callback()
def options(
    context: typer.Context,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version, and exit."
        ),
    ] = False,
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
    raise_limit()
    if COMPLETE in os.environ:
        join_words(os.environ)
    end_with(execute(sys.argv[1:]))


def execute(arguments: list[str]) -> int:
    """Run a command and return its exit code; `error_output.EXIT_CODES` has the meanings."""
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    debug, as_json = DEBUG in words, JSON in words
    rest = [word for word in words if word != DEBUG] + arguments[len(words) :]
    try:
        outcome = application(rest, prog_name="penstock", standalone_mode=False)
    except SystemExit as exit_:
        outcome = exit_.code
    except (Exception, KeyboardInterrupt) as error:
        if debug and not isinstance(error, KeyboardInterrupt | typer.TyperException):
            raise
        outcome = _show(error, as_json=as_json)
    return outcome if isinstance(outcome, int) else 0


def _show(error: BaseException, *, as_json: bool) -> int:
    """Print an error that ended a command, and return the exit code."""
    match error:
        case KeyboardInterrupt():
            if not as_json:
                return error_output.INTERRUPTED
            description = error_output.describe(error, error_output.INTERRUPTED)
        case typer.TyperException() if is_help_page(error.format_message()):
            typer.echo(error.format_message())  # a group of commands without a command
            return error.exit_code
        case typer.TyperException():
            description = _usage_error(error)
        case ModuleNotFoundError() if not (error.name or "").startswith("penstock"):
            message, hint = message_and_hint(error.name or str(error))
            description = structs.replace(error_output.describe(ConfigError(message)), hint=hint)
        case _:
            description = error_output.describe(error)
    return error_output.show(description, as_json=as_json)


def _usage_error(error: typer.TyperException) -> ErrorDescription:
    """Describe an error of typer: an unknown option, a missing argument."""
    path = getattr(getattr(error, "ctx", None), "command_path", "penstock")
    hint = f"{path} --help shows the arguments and options."
    return ErrorDescription(error_output.USAGE, error.format_message(), hint, error.exit_code)
