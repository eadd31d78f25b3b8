"""`penstock apps`: the deployments of an application, and their source."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from penstock.base.ids import epochs_text
from penstock.cli.options import AppOptions, JsonOption
from penstock.cli.output import counted, folding_table, print_result, utc_text
from penstock.errors import ConfigError

if TYPE_CHECKING:
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
"""

_HASH_SHOWN: Final = 12


def command(
    options: AppOptions,
    source: Annotated[
        tuple[int, Path] | None,
        typer.Option(
            "--source", metavar="NUMBER DIR", help="Write the source of a deployment into DIR."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List deployments, or write the source of one; see `HELP`."""
    options.find()
    data = options.folder()
    from penstock.files.layout import JOURNAL
    from penstock.journal.deployments import Deployments

    if not (data / JOURNAL).is_dir():
        raise ConfigError(
            f"there is no journal in {data}; name the application's directory with --data"
        )
    every = Deployments(data / JOURNAL).every()
    present = _number_in_force(data, every)
    if source is not None:
        answer = _write_source(data, every, *source)
        line = f"{counted(len(answer['files']), 'file', 'files')} of deployment {source[0]}: {source[1]}"
        print_result(answer, lambda console: console.print(line), as_json=as_json)
        return
    pairs = zip((None, *every), every, strict=False)
    rows = [_row(former, each) | {"in_force": each.number == present} for former, each in pairs]
    print_result(rows, lambda console: _show(rows, console), as_json=as_json)


def _row(former: "Deployment | None", deployment: "Deployment") -> dict[str, Any]:
    """Return a deployment as a JSON object, with its differences from the deployment before it."""
    from penstock.journal.deployments import version_changes

    code, shapes = deployment.code, deployment.shapes
    changed: list[str] = []
    environment: list[str] = []
    if former is not None:
        names = sorted(former.shapes.keys() | shapes.keys())
        changed = [name for name in names if former.shapes.get(name) != shapes.get(name)]
        environment = version_changes(former.code, code)
    return {
        "number": deployment.number,
        "since": deployment.since,
        "time_us": deployment.time_us,
        "archive": code.archive,
        "app": f"{code.module}:{code.name}",
        "python": code.python,
        "libraries": code.libraries,
        "applications": code.sources,
        "changed_applications": _changed_applications(former, deployment),
        "source_changed": former is None or former.code.archive != code.archive,
        "changed_classes": changed,
        "changed_versions": environment,
    }


def _changed_applications(former: "Deployment | None", deployment: "Deployment") -> list[str]:
    """Return the applications of a set that a deployment adds, changes or removes."""
    was = {} if former is None else former.code.sources
    now = deployment.code.sources
    return [name for name in sorted(was.keys() | now.keys()) if was.get(name) != now.get(name)]


def _number_in_force(data: Path, every: "tuple[Deployment, ...]") -> int | None:
    """Return the number of the deployment that executes the next epoch; None if there is none."""
    from penstock.base.ids import BEFORE_FIRST, Epoch
    from penstock.journal.deployments import deployment_at
    from penstock.process.data_directory import DataDirectory

    directory = DataDirectory(data)
    with closing(directory.open_journal_of(directory.app_name or "")) as journal:
        last = journal.last()
    deployment = deployment_at(every, Epoch((BEFORE_FIRST if last is None else last.epoch) + 1))
    return None if deployment is None else deployment.number


def _write_source(
    data: Path, every: "tuple[Deployment, ...]", number: int, target: Path
) -> dict[str, Any]:
    """Unpack the archive of a deployment into a directory that does not exist or is empty."""
    from penstock.process.archives import Archives

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


def _show(rows: list[dict[str, Any]], console: Console) -> None:
    if not rows:
        console.print("no deployment is recorded; the next start of the driver records one")
        return
    table = folding_table(
        "deployment", "since epoch", "in force", "recorded", "archive", "what changed"
    )
    for row in rows:
        number, since, recorded = str(row["number"]), str(row["since"]), utc_text(row["time_us"])
        in_force = "yes" if row["in_force"] else ""
        table.add_row(
            number, since, in_force, recorded, row["archive"][:_HASH_SHOWN], _changes(row)
        )
    console.print(table)


def _changes(row: dict[str, Any]) -> str:
    if row["number"] == 1:
        return "the first deployment"
    changed = row["changed_applications"]
    texts = [f"source{' of ' if changed else ''}{', '.join(changed)}"]
    texts = texts if row["source_changed"] else []
    if row["changed_classes"]:
        texts.append(f"stored form of {', '.join(row['changed_classes'])}")
    return "; ".join([*texts, *row["changed_versions"]]) or f"the application is {row['app']}"
