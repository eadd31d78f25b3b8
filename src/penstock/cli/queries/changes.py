"""`penstock changes`: the changes of the entities of a class, before and after."""

import sys
from typing import Annotated, Final

import typer

from penstock.cli import word_completion
from penstock.cli.options import AppOptions, JsonOption, check_class_word
from penstock.cli.output import OutputFormat
from penstock.cli.remote import RemoteOptions

HELP: Final = """Show the changes that epochs made to the entities of a class.

Each change has its epoch, the time of the commit, the entity's key, and the entity before and after.
The command reads the journal in the data directory; no process of the application needs to run. In SQL
the same is a table: changes('Item', 10, 20).

\b
Examples:
  penstock changes Item examples/shop
  penstock changes Item examples/shop --from 10 --to 20
  penstock changes Order examples/shop --data DIR --format lines | jq .after
  penstock changes Order --from 10 --url http://127.0.0.1:8000
"""


def command(
    entity: Annotated[
        str,
        typer.Argument(
            metavar="CLASS",
            help="The class of the entities.",
            autocompletion=word_completion.stored_classes,
        ),
    ],
    options: AppOptions,
    remote: RemoteOptions,
    first: Annotated[
        int | None,
        typer.Option("--from", metavar="N", help="First epoch; default the oldest held."),
    ] = None,
    last: Annotated[
        int | None, typer.Option("--to", metavar="N", help="Last epoch; default the newest.")
    ] = None,
    output_format: Annotated[
        OutputFormat, typer.Option("--format", help="The output format.")
    ] = OutputFormat.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Print the changes of a class; see `HELP`."""
    check_class_word(entity, "penstock changes ENTITY [APP]")
    if remote.url is None:
        options.find()
    from penstock.cli.queries.changes_answer import changes_at, changes_here, print_changes

    output_format = OutputFormat.JSON if as_json else output_format
    result_format = output_format.result_format
    if remote.url is None:
        answer = changes_here(entity, options, (first, last), result_format)
    else:
        answer = changes_at(remote, entity, (first, last), result_format)
    if output_format is OutputFormat.TABLE:
        print_changes(answer)
        return
    sys.stdout.buffer.write(answer.content)
    sys.stdout.buffer.flush()
