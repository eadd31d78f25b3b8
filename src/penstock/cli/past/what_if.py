"""`penstock what-if`: run history again with other requests or other code, and compare."""

from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli import completion
from penstock.cli.options import AppOptions, FromOption, JsonOption, ToOption
from penstock.cli.output import print_result
from penstock.errors import ConfigError

HELP: Final = """Run the journal's requests again with changes, and show how the outcome differs.

Each epoch runs with the code that executed it, or with --code all epochs with other code; --without leaves requests out; --edit replaces, inserts or drops
requests as a file says, one JSON object in each line:

\b
  {"request_id": "r17", "arguments": [2]}
  {"request_id": "new-1", "after": "r17", "entity": "Item", "key": "i1", "method": "add",
   "arguments": [5]}        (on one line, or all in one array)
  {"request_id": "r18", "drop": true}

The command shows the replies, entities, events, sent requests and later records that differ from the journal
and, with --sql, the rows of a query about entities. Epochs, times and ids stay the same. The application does not change, and may run
meanwhile. The outcome can be kept in a new data directory for sql, replay and trace.

The exit code is 0, whether something differs or not.

\b
Examples:
  penstock what-if examples/shop --without checkout-17
  penstock what-if examples/shop --code new/shop --sql "SELECT sum(credit) FROM User"
  penstock what-if examples/shop --from 100 --to 200 --edit edits.jsonl --keep /tmp/what-if --json
"""


def command(
    options: AppOptions,
    first: FromOption = None,
    last: ToOption = None,
    new_app: Annotated[
        str | None,
        typer.Option(
            "--code",
            metavar="NEW_APP",
            help="Other code for all epochs; named as APP is.",
            autocompletion=completion.applications,
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            "--without",
            metavar="REQUEST_ID",
            help="Leave it out; may be repeated.",
        ),
    ] = None,
    edit: Annotated[
        str | None, typer.Option("--edit", metavar="FILE", help="Edits; - is standard input.")
    ] = None,
    queries: Annotated[
        list[str] | None,
        typer.Option("--sql", metavar="QUERY", help="Compare its results; may be repeated."),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Keep the outcome; DIR must not exist."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a scenario and compare; see `HELP`."""
    if options.app and options.named is not None:
        raise ConfigError(  # an earlier version named the other code with --app
            "--app names the application, as APP does; name the other code with --code NEW_APP"
        )
    options.find()
    from penstock.cli.past.what_if_report import json_of, show
    from penstock.cli.past.what_if_scenario import RequestedScenario, report_on

    wanted = RequestedScenario((first, last), new_app, without or [], edit, queries or [], keep)
    report = report_on(wanted, options)
    print_result(json_of(report), lambda console: show(report, console), as_json=as_json)
