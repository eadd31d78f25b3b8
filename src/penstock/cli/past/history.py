"""`penstock history`: every change of one entity, with the request that made it."""

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.base.ids import entity_key
from penstock.cli import word_completion
from penstock.cli.options import (
    AppOptions,
    FromOption,
    JsonOption,
    PresentCodeOption,
    ToOption,
    check_class_word,
)
from penstock.cli.output import counted, folding_table, print_result, utc_text
from penstock.cli.past.trace import show_outside_calls
from penstock.cli.remote import RemoteOptions
from penstock.cli.value_text import (
    ABSENT,
    SIDES,
    deviation_text,
    difference_rows,
    differences_of,
)

if TYPE_CHECKING:
    from rich.console import Console

HELP: Final = """Show the changes of one entity, the newest last, with the request that made each.

The command finds the epochs that changed the entity in the journal, and runs only these again, in
this process, to learn which request made which change. Nothing is written. It shows the stored values. If a
request has another result this time, for example because it reads a clock, the change says so.

\b
Examples:
  penstock history Item i1 examples/shop
  penstock history Item i1 examples/shop --last 100 --json
  penstock history Order o7 examples/shop --from 100 --to 200
  penstock history Order o7 --url http://127.0.0.1:8000
"""


def command(
    entity: Annotated[
        str,
        typer.Argument(
            metavar="ENTITY",
            help="The class of the entity.",
            autocompletion=word_completion.stored_classes,
        ),
    ],
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY",
            help="The key of the entity.",
        ),
    ],
    options: AppOptions,
    remote: RemoteOptions,
    first: FromOption = None,
    last: ToOption = None,
    most: Annotated[
        int, typer.Option("--last", metavar="N", min=1, help="Only the newest N changes.")
    ] = 20,
    present_code: PresentCodeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the changes of an entity; see `HELP`."""
    check_class_word(entity, "penstock history ENTITY KEY [APP]")
    if remote.url is None:
        plain = _history_here(entity, key, options, (first, last), most, present_only=present_code)
    else:
        with remote.client() as client:
            plain = client.history(entity, key, most, from_epoch=first, to_epoch=last)
    print_result(plain, lambda console: _show(plain, console), as_json=as_json)


def _history_here(
    entity: str,
    key: str,
    options: AppOptions,
    bounds: tuple[int | None, int | None],
    most: int,
    *,
    present_only: bool,
) -> dict[str, Any]:
    """Return the changes of an entity from the journal of a data directory.

    Args:
        bounds: The first and the last epoch, if the command names them.
        present_only: Whether the present code executes all epochs.
    """
    application, settings = options.load_unchecked()
    stored_name = application.entity(entity).stored_name
    from penstock.history.code_versions import CodeVersions
    from penstock.history.reader import HistoryReader
    from penstock.history.trace import document_json, entity_history

    name = entity_key(stored_name, key)
    with (
        HistoryReader(settings.data, application, "history") as past,
        CodeVersions(past, application, settings.app, present_only=present_only) as versions,
        redirect_stdout(sys.stderr),  # the output of handlers is not part of the answer
    ):
        span = past.span(*bounds)
        return document_json(entity_history(past, versions, name, span, most, settings.limits))


def _show(plain: dict[str, Any], console: "Console") -> None:
    from rich import box
    from rich.text import Text

    for change in plain["changes"]:
        committed = utc_text(change["time_us"])
        known = change["request_id"] is not None
        by = (
            f"request {change['request_id']}" if known else "by a request that does not do it again"
        )
        console.print(Text(f"epoch {change['epoch']}, {committed}: {by}"))
        if known:
            console.print(Text(f"  {change['call']}"))
        if deviation := deviation_text(change["deviations"]):
            console.print(Text(f"  {deviation}"), style="bold red")
        table = folding_table(*SIDES, box=box.SIMPLE)
        for row in difference_rows(differences_of(change)) or [("", ABSENT, ABSENT)]:
            table.add_row(*row)
        console.print(table)
    if erased := plain.get("erased"):
        console.print(
            f"changes of {counted(erased, 'epoch', 'epochs')}, by requests about erased persons, cannot be shown"
        )
    show_outside_calls(plain["outside"], console)
    if plain["more"]:
        console.print("there are older changes; --last shows more")
