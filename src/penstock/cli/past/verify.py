"""`penstock verify`: check every checksum and invariant of a data directory."""

from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from penstock.base.ids import epochs_text
from penstock.cli.error_output import OTHER_ERROR
from penstock.cli.options import AppOptions, JsonOption
from penstock.cli.output import print_result
from penstock.cli.progress import ProgressBar

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.history.verification import VerificationReport

HELP: Final = """Check every checksum and invariant of a data directory.

The command reads the whole journal and log, and compares them with each other and with everything
that is derived from them: local state, snapshots, checkpoints, the SQL view. For each fault it says
where it is, and whether the file can be rebuilt or must be restored from a backup. The application
may run meanwhile; the command then lists the checks that it skipped.

With --repair, the command removes damaged files that Penstock can rebuild, and Penstock rebuilds them when it needs them.
It writes Delta logs of snapshots and certificates of erasures again at once. Stop the application first.

Exit code 1: something has to be done.

\b
Examples:
  penstock verify examples/shop
  penstock verify examples/shop --data /var/lib/shop --json
  penstock verify examples/shop --repair
"""

_STYLES: Final = {"none": "dim", "rebuild": "yellow", "backup": "bold red"}
"""By the value of `Remedy`, whose module is large: help must stay quick."""


def command(
    options: AppOptions,
    repaired: Annotated[
        bool, typer.Option("--repair", help="Remove damaged files that can be rebuilt.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Verify a data directory; see `HELP`."""
    application, settings = options.load_unchecked()
    from penstock.history.verification import repair, verify
    from penstock.sql_view.verification import check_view

    with ProgressBar("verify") as bar:

        def show_progress(part: str, done: int, total: int) -> None:
            bar.begin(f"verify: {part}") if not done else bar.at(done, total)

        verified = verify(settings.data, application, show_progress, [check_view])
    removed = repair(settings.data, application, verified) if repaired else []
    plain = msgspec.to_builtins(verified)
    plain |= {"problems": len(verified.problems), "removed": removed}
    print_result(plain, lambda console: _show(verified, removed, console), as_json=as_json)
    if len(verified.problems) > len(removed):
        raise typer.Exit(OTHER_ERROR)


def _show(verified: "VerificationReport", removed: list[str], console: "Console") -> None:
    console.print(f"{verified.data}: {epochs_text(verified.first, verified.epoch)}")
    for finding in verified.findings:
        console.print(f"{finding.where}: {finding.what}", style=_STYLES[finding.remedy])
        console.print(f"  {finding.how}")
    for text in verified.skipped:
        console.print(f"not checked: {text}", style="dim")
    for path in removed:
        console.print(f"repaired {path}")
    if not verified.problems:
        console.print("nothing has to be done", style="green")
