"""`penstock apps`: the deployments of an application, and their source."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.base.ids import epochs_text
from penstock.cli.options import AppOptions, JsonOption
from penstock.cli.output import counted, folding_table, print_result, utc_text
from penstock.cli.remote import RemoteOptions
from penstock.errors import ConfigError
from penstock.files.roots import journal_root

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.base.deployment_answers import ListedDeployment
    from penstock.journal.deployments import Deployment

HELP: Final = """List the deployments of an application: which code ran since which epoch.

penstock deploy and penstock rollback make deployments while the application runs. A driver that starts records one,
too, if the source, the version of Python, or the version of a library that the source imports has changed. The
source of each deployment is in the data directory, in an archive that is named by the hash of its content. replay,
trace and history run a recorded request with the code of its epoch.

For a set of applications, the list shows which of them a deployment has changed.

With --source, the command writes the source of one deployment into a new directory.

\b
Examples:
  penstock apps examples/shop
  penstock apps --data /var/lib/shop --json
  penstock apps examples/shop --source 2 /tmp/shop-2
  penstock apps --url https://shop.example
"""

_HASH_SHOWN: Final = 12


def command(
    options: AppOptions,
    remote: RemoteOptions,
    source: Annotated[
        tuple[int, Path] | None,
        typer.Option(
            "--source", metavar="NUMBER DIR", help="Write the source of a deployment into DIR."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List deployments, or write the source of one; see `HELP`."""
    if remote.url is not None:
        if source is not None:
            raise ConfigError("--source reads the data directory; use it without --url")
        rows = remote.get("/deployments", _rows_type())
    else:
        options.find()
        data = options.folder()
        from penstock.deployment.deployment_list import list_deployments

        rows = list_deployments(data)
        if source is not None:
            _print_source(data, source, as_json=as_json)
            return
    print_result(rows, lambda console: _show(rows, console), as_json=as_json)


def _rows_type() -> "type[list[ListedDeployment]]":
    from penstock.base.deployment_answers import ListedDeployment  # after the help

    return list[ListedDeployment]


def _print_source(data: Path, source: tuple[int, Path], *, as_json: bool) -> None:
    """Write the source of a deployment into a directory, and print how many files it has."""
    from penstock.journal.deployments import Deployments

    answer = _write_source(data, Deployments(journal_root(data)).every(), *source)
    line = (
        f"{counted(len(answer['files']), 'file', 'files')} of deployment {source[0]}: {source[1]}"
    )
    print_result(answer, lambda console: console.print(line), as_json=as_json)


def _write_source(
    data: Path, every: "tuple[Deployment, ...]", number: int, target: Path
) -> dict[str, Any]:
    """Unpack the archive of a deployment into a directory that does not exist or is empty."""
    from penstock.deployment.archives import Archives

    chosen = next((each for each in every if each.number == number), None)
    if chosen is None:
        known = epochs_text(1, len(every)).replace("epoch", "deployment") if every else "none"
        raise ConfigError(f"{data} has no deployment {number}; it has {known}")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"{target} is not empty; name a directory that does not exist")
    archives = Archives(data)
    archives.unpack(chosen.code.archive, target)
    files = sorted(archives.files(chosen.code.archive))
    return {"number": number, "archive": chosen.code.archive, "target": str(target), "files": files}


def _show(rows: "list[ListedDeployment]", console: "Console") -> None:
    if not rows:
        console.print("no deployment is recorded; the next start of the driver records one")
        return
    table = folding_table(
        "deployment", "since epoch", "in force", "recorded", "archive", "what changed"
    )
    for row in rows:
        number, since, recorded = str(row.number), str(row.since), utc_text(row.time_us)
        in_force = "yes" if row.in_force else ""
        table.add_row(number, since, in_force, recorded, row.archive[:_HASH_SHOWN], _changes(row))
    console.print(table)


def _changes(row: "ListedDeployment") -> str:
    if row.number == 1:
        return "the first deployment"
    changed = row.changed_applications
    texts = [f"source{' of ' if changed else ''}{', '.join(changed)}"]
    texts = texts if row.source_changed else []
    if row.changed_classes:
        texts.append(f"stored form of {', '.join(row.changed_classes)}")
    return "; ".join([*texts, *row.changed_versions]) or f"the application is {row.app}"
