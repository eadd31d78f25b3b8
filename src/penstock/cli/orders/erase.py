"""`penstock erase`: erase a person, or list the certificates of erasures."""

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.base.ids import Epoch
from penstock.cli.options import DataOptions, JsonOption
from penstock.cli.output import folding_table, print_result, utc_text
from penstock.cli.remote import RemoteOptions
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.orders.order import Place
    from penstock.process.erasures import Certificate

HELP: Final = """Erase a person: an entity of a class that is declared with personal=True.

From its place in the order on, the entity is deleted. Then the key of its data is destroyed, so that no file, former
epoch or backup shows them any more. This cannot be undone. Requests about the person that are scheduled, or that
arrive with data that were encrypted before, fail with erased. The same key may be used for another person afterwards.

Views with personal data are filled again without the person, and the command waits for them, at most for its
time-out. A view that is paused, held, refused or stopped passes the erasure later.

A certificate remains: the entity, the epoch and the time, the views that have passed the erasure, and those that have
not, with the reason. With --url, a gateway takes the order; its key needs the scope admin.

\b
Examples:
  penstock erase User/ada library.py --yes
  penstock erase library.py --list
  penstock erase User/ada --url https://library.example --key KEY
"""


def command(
    options: DataOptions,
    remote: RemoteOptions,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SUBJECT APP",
            help="The entity, and the application if no option or setting names it.",
            show_default=False,
        ),
    ] = None,
    confirmed: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Show all certificates.")] = False,
    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout", min=0.0, help="The seconds to wait for the driver and the views."
        ),
    ] = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Erase a person, or list the certificates; see `HELP`."""
    subjects, apps = (words or [])[: not listed], (words or [])[not listed :]
    if apps:
        options = replace(options, named=apps[0])
    has_place = remote.url is not None or options.settings().app
    if (not listed and not subjects) or len(apps) > 1 or not has_place:
        raise ConfigError(
            "write penstock erase SUBJECT APP, or APP with --list; --app or a setting may name the application in "
            "place of APP, and so does --url"
        )
    if listed:
        from penstock.orders.erasure_order import CERTIFICATES

        every = remote.report(CERTIFICATES, lambda: _place(options))
        print_result(every, lambda console: _show(every, console), as_json=as_json)
        return
    _confirm(subjects[0], confirmed=confirmed)
    from penstock.cli.progress import ProgressBar
    from penstock.orders.erasure_order import ErasureOrder

    with ProgressBar("views") as bar:
        made = remote.give(
            ErasureOrder(subjects[0]), lambda: _place(options)._replace(told=bar.at), timeout_s
        )
    print_result(made, lambda console: _show_made(made, console), as_json=as_json)


def _show_made(made: "Certificate", console: "Console") -> None:
    line = f"{made.subject} is erased from epoch {made.epoch} on; certificate {made.hash}"
    console.print(line, soft_wrap=True)
    if not made.existed:
        line = f"there was no {made.subject}: nothing was deleted, and the key of former data is destroyed; is the name right?"
        console.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)
    for view in made.views:
        if view.passed:
            line, style = f"view {view.view} has passed it, at epoch {view.epoch}", ""
        else:
            told = "; ".join(filter(None, (view.reason, view.remedy)))
            line, style = f"view {view.view} has not passed it: {view.state}, {told}", "yellow"
        console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


def _place(options: DataOptions) -> "Place":
    from penstock.orders.order import Place

    app, settings = options.load()
    return Place(settings, app)


def _confirm(subject: str, *, confirmed: bool) -> None:
    if confirmed:
        return
    is_sure = False
    with suppress(typer.Abort):  # the end of the input: a script without --yes must erase no person
        is_sure = typer.confirm(f"Erase {subject}? This cannot be undone.", err=True)
    if not is_sure:
        raise ConfigError(
            f"{subject} is not erased, because the question was not answered with y; --yes answers it"
        )


def _show(every: "list[Certificate]", console: "Console") -> None:
    table = folding_table("subject", "epoch", "erased", "views", "certificate")
    for certificate in every:
        epoch, erased = str(Epoch(certificate.epoch)), utc_text(certificate.time_us)
        table.add_row(certificate.subject, epoch, erased, _views(certificate), certificate.hash)
    console.print(table)


def _views(certificate: "Certificate") -> str:
    late = [view.view for view in certificate.views if not view.passed]
    if late:
        return f"not passed by {', '.join(late)}"
    return "all passed" if certificate.views else "none"
