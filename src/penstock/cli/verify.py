"""`penstock verify`: every checksum and invariant of a data directory."""

import sys
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.console import Console

from penstock.cli.error_output import OTHER_ERROR
from penstock.cli.options import (
    AppArgument,
    ConfigOption,
    DataOption,
    JsonOption,
    config_of,
    default_data,
)
from penstock.cli.progress import Bar
from penstock.history.verification.finding import Remedy
from penstock.history.verification.verify import VerificationReport, repair, verify
from penstock.process.loading import load_app
from penstock.sql.verification import check_view

HELP: Final = """Check every checksum and invariant of a data directory.

It reads the whole journal and log, and compares them with each other and with all that is derived
from them: local state, snapshots, checkpoints, the SQL view. For everything that is wrong it says
where, and whether it can be rebuilt or must come from a backup. It may run beside the application,
and says what it could not check then.

With --repair, which wants the application to be stopped, what is derived and broken is removed: it
is built anew when it is needed.

Exit codes: 0 nothing has to be done, 1 something has.

\b
Examples:
  penstock verify examples/shop
  penstock verify examples/shop --data /var/lib/shop --json
  penstock verify examples/shop --repair
"""

_STYLES: Final = {Remedy.NONE: "dim", Remedy.REBUILD: "yellow", Remedy.BACKUP: "bold red"}


def verify_command(
    app: AppArgument,
    repaired: Annotated[  # noqa: FBT002 -- a flag
        bool, typer.Option("--repair", help="Remove what is derived and broken.")
    ] = False,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,  # noqa: FBT002 -- a flag
) -> None:
    """Verify a data directory; see `HELP`."""
    application = load_app(app)
    folder = config_of(default_data(application.name), data=data, file=config).data
    with Bar("verify") as bar:

        def told(what: str, done: int, total: int) -> None:
            bar.now(f"verify: {what}") if not done else bar.at(done, total)

        found = verify(folder, application, told, [check_view])
    removed = repair(folder, application, found) if repaired else []
    if as_json:
        sys.stdout.write(f"{msgspec.json.encode(_json_of(found, removed)).decode()}\n")
    else:
        _show(found, removed)
    if len(found.problems) > len(removed):
        raise typer.Exit(OTHER_ERROR)


def _json_of(found: VerificationReport, removed: list[str]) -> dict[str, Any]:
    """Return what was found as plain data; keys are stable."""
    plain: dict[str, Any] = msgspec.to_builtins(found)
    return plain | {"problems": len(found.problems), "removed": removed}


def _show(found: VerificationReport, removed: list[str]) -> None:
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(f"{found.data}: epochs {found.first} to {found.epoch}")
    for one in found.findings:
        console.print(f"{one.where}: {one.what}", style=_STYLES[one.remedy])
        console.print(f"  {one.how}")
    for text in found.skipped:
        console.print(f"not checked: {text}", style="dim")
    for where in removed:
        console.print(f"removed {where}")
    if not found.problems:
        console.print("nothing has to be done", style="green")
