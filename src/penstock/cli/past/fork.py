"""`penstock fork`: a copy of an application at an epoch, for experiments."""

from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.options import AppOptions, JsonOption, new_place_of
from penstock.cli.past.restore import announcer, print_branch
from penstock.cli.progress import ProgressBar
from penstock.process.fault import Fault
from penstock.process.stop import interruptible

HELP: Final = """Copy an application, which may run meanwhile, as it was at an epoch.

The copy is a new data directory. It is independent: its requests do not reach the original. Files
that never change are shared through hard links if the file system has them, so a copy costs little
space. A disk fault in a shared file damages both applications, so a fork does not replace a backup.

\b
Examples:
  penstock fork /tmp/shop-copy examples/shop
  penstock fork /tmp/shop-copy examples/shop --at 1200
  penstock fork /tmp/shop-copy examples/shop --at before-sale
  penstock fork /tmp/shop-copy examples/shop --at 2026-11-21T08:30:00+01:00
  penstock fork s3://bucket/shop-copy examples/shop --data s3://bucket/shop
"""


def command(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="NEW_DATA",
            help="A data directory that does not exist, or s3://BUCKET/PREFIX without objects.",
        ),
    ],
    options: AppOptions,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="EPOCH|NAME|TIME", help="The end of its history; default the newest."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Fork an application; see `HELP`."""
    application, settings = options.load_unchecked()
    from penstock.history import restore

    aim = None if at is None else restore.parse_restore_point(at)
    reached = Fault(settings.fault).reached
    place = new_place_of(target)
    if personal := restore.personal_classes(settings.data):
        announcer("a fork does not get", place.folder)(personal)
    with interruptible(), ProgressBar("fork") as bar:
        branch = restore.fork(settings.data, application.name, place, aim, reached, bar.at)
    print_branch(branch, "forked", settings.app, place.folder, as_json=as_json)
