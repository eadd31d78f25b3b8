"""`penstock fork`: a copy of an application at an epoch, to experiment with."""

from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.application import application_of
from penstock.cli.options import (
    AppArgument,
    ConfigOption,
    DataOption,
    JsonOption,
)
from penstock.cli.progress import Bar
from penstock.cli.restore import show
from penstock.history import restore
from penstock.process.fault import Fault

HELP: Final = """Copy an application, while it runs, into a new data directory, as it was at an epoch.

The copy goes on by itself: what happens there does not reach the original. Files that never change
are shared by hard links where the file system has them, so a copy costs little space; a disk that
damages one damages it for both, so a fork is no backup.

\b
Examples:
  penstock fork /tmp/shop-copy examples/shop
  penstock fork /tmp/shop-copy examples/shop --at 1200
  penstock fork /tmp/shop-copy examples/shop --at before-sale
  penstock fork /tmp/shop-copy examples/shop --at 2026-11-21T08:30:00+01:00
"""


def fork(
    target: Annotated[
        Path, typer.Argument(metavar="NEW_DATA", help="A data directory that does not exist.")
    ],
    app: AppArgument,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="EPOCH|NAME|TIME", help="Where history ends; default: nowhere."
        ),
    ] = None,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,  # noqa: FBT002 -- a flag
) -> None:
    """Fork an application; see `HELP`."""
    application, settings = application_of(app, data=data, file=config)
    aim = None if at is None else restore.parse_restore_point(at)
    reached = Fault(settings.fault).reached
    with Bar("fork") as bar:
        branch = restore.fork(settings.data, application.name, target, aim, reached, bar.at)
    show(branch, "forked", app, as_json=as_json)
