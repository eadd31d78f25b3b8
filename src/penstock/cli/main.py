"""The command `penstock`: registers the commands, and turns every error into an exit code."""

import sys
from typing import Annotated, Final

import typer

from penstock.cli import failure
from penstock.cli.backup import HELP as BACKUP_HELP
from penstock.cli.backup import backup
from penstock.cli.bench.command import DEMO_HELP, bench, demo
from penstock.cli.call import HELP as CALL_HELP
from penstock.cli.call import call
from penstock.cli.changes import HELP as CHANGES_HELP
from penstock.cli.changes import changes
from penstock.cli.dev import HELP as DEV_HELP
from penstock.cli.dev import dev
from penstock.cli.driver import HELP as DRIVER_HELP
from penstock.cli.driver import driver
from penstock.cli.explain import HELP as EXPLAIN_HELP
from penstock.cli.explain import explain
from penstock.cli.fork import HELP as FORK_HELP
from penstock.cli.fork import fork
from penstock.cli.gateway import HELP as GATEWAY_HELP
from penstock.cli.gateway import gateway
from penstock.cli.history import HELP as HISTORY_HELP
from penstock.cli.history import history_of
from penstock.cli.keys import keys
from penstock.cli.new import HELP as NEW_HELP
from penstock.cli.new import new
from penstock.cli.replay import HELP as REPLAY_HELP
from penstock.cli.replay import again as replay
from penstock.cli.restore import HELP as RESTORE_HELP
from penstock.cli.restore import again as restore
from penstock.cli.run import HELP as RUN_HELP
from penstock.cli.run import run
from penstock.cli.savepoint import HELP as SAVEPOINT_HELP
from penstock.cli.savepoint import savepoint
from penstock.cli.snapshot import HELP as SNAPSHOT_HELP
from penstock.cli.snapshot import snapshot
from penstock.cli.sql import HELP as SQL_HELP
from penstock.cli.sql import sql
from penstock.cli.status import HELP as STATUS_HELP
from penstock.cli.status import status
from penstock.cli.trace import HELP as TRACE_HELP
from penstock.cli.trace import trace_request
from penstock.cli.verify import HELP as VERIFY_HELP
from penstock.cli.verify import again as verify
from penstock.cli.view import HELP as VIEW_HELP
from penstock.cli.view import view
from penstock.cli.what_if import HELP as WHAT_IF_HELP
from penstock.cli.what_if import again as what_if
from penstock.errors import PenstockError

HELP: Final = """Serializable transactions over plain Python classes, on Apache Spark.

\b
Examples:
  penstock demo                                      see it work
  penstock new kiosk                                 write a first application
  penstock dev kiosk/app.py                          run it while you change it
  penstock run examples/shop --port 8000             run an application
  penstock status examples/shop                      see what runs, and how
  penstock call examples/shop Item i1 create price=3 send it a request
  penstock sql "FROM Item" examples/shop             ask what is stored
  penstock explain examples/shop                     see its dataflow graph
  penstock bench checkout --max --seconds 20 --json  measure
"""

DEBUG: Final = "--debug"

application: Final = typer.Typer(
    name="penstock",
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


@application.callback()
def options(
    debug: Annotated[  # noqa: FBT002 -- a flag; `main` has looked for it already
        bool, typer.Option(DEBUG, help="Show the traceback of an error; anywhere before --.")
    ] = False,
) -> None:
    """Take what is for every command."""


application.command(help=NEW_HELP)(new)
application.command(help=DEV_HELP)(dev)
application.command(help=RUN_HELP)(run)
application.command(help=STATUS_HELP)(status)
application.command(help=DRIVER_HELP)(driver)
application.command(help=GATEWAY_HELP)(gateway)
application.command(help=VIEW_HELP)(view)
application.command(help=SQL_HELP)(sql)
application.command(help=CHANGES_HELP)(changes)
application.command(help=CALL_HELP, context_settings={"ignore_unknown_options": True})(call)
application.command(help=EXPLAIN_HELP)(explain)
application.command("replay", help=REPLAY_HELP)(replay)
application.command("what-if", help=WHAT_IF_HELP)(what_if)
application.command("trace", help=TRACE_HELP)(trace_request)
application.command("history", help=HISTORY_HELP)(history_of)
application.command("snapshot", help=SNAPSHOT_HELP)(snapshot)
application.command(help=SAVEPOINT_HELP)(savepoint)
application.command(help=BACKUP_HELP)(backup)
application.command("restore", help=RESTORE_HELP)(restore)
application.command(help=FORK_HELP)(fork)
application.command("verify", help=VERIFY_HELP)(verify)
application.command(help=DEMO_HELP)(demo)
application.add_typer(keys, name="keys")
application.add_typer(bench, name="bench")


def main() -> None:
    """Run the command that the process was started with, and exit."""
    sys.exit(execute(sys.argv[1:]))


def execute(arguments: list[str]) -> int:
    """Run a command and return its exit code.

    0 success, 2 the caller must change something, 3 a reply is an error, 130 interrupted, 1 else.
    """
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    debug = DEBUG in words
    rest = [one for one in words if one != DEBUG] + arguments[len(words) :]
    try:
        application(rest, prog_name="penstock")
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 0
    except PenstockError as error:
        if debug:
            raise
        failure.show(error)
        return failure.exit_code_of(error)
    except KeyboardInterrupt:
        return failure.INTERRUPTED
    except Exception as error:
        if debug:
            raise
        failure.show_unexpected(error)
        return failure.OTHER_ERROR
    return 0
