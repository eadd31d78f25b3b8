"""`penstock deploy`, `rollback` and `remove`: other code into a running application, or only the report about it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlencode

import typer

from penstock.cli.error_output import OTHER_ERROR
from penstock.cli.options import (
    NOWHERE,
    UNNAMED,
    AppOptions,
    DataOptions,
    DeployTimeoutOption,
    DropOption,
    JsonOption,
    default_data,
)
from penstock.cli.output import print_result
from penstock.cli.remote import RemoteOptions
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.base.deployment_answers import DeploymentReport, DeploymentResult
    from penstock.process.config import Config

DEPLOY_HELP: Final = """Deploy the present code of an application, while it runs.

The code takes effect between two epochs: requests before that place run with the old code, and all later requests
with the new code, in all processes. No request is lost, and no connection ends. Until a gateway has loaded the new
code, it may answer a read of a changed class with 503, and the read can be sent again. The command stores the
source in the data directory, imports it there in a process of its own, and compares its classes with the stored
entities. If it adds an index over 20,000 or more entities, the rows of the index are made next, while requests go on;
penstock status shows how far this is. Code that cannot be imported, or does not fit, is refused, and nothing changes. A class with stored entities
that has disappeared from the source is refused, unless --drop names it: its entities stay stored, SQL and
history show them, and no request reaches them. Code that would read waiting requests or events with another meaning is
refused, and waiting requests that the code does not take are named. The command ends when
all gateways serve the new code, or after --timeout and then names those that do not. If no driver runs, the
deployment waits in the log for the next start.

If the data directory, named with --data, has other applications, APP joins them, or replaces its own former version:
the others stay as they are deployed, but for files that they and APP import, which come from APP. Their interfaces are
compared with APP.

With --check, the command deploys nothing; of a set it stores an archive, which maintenance removes. It compares the present code with the last deployment (penstock
apps shows it): the stored form of classes; methods, functions, routes and streams; and the requests that wait in
the log. It runs the newest epochs of that deployment again with the present code, and says how many replies and
entities would have come out otherwise; penstock what-if --code shows them. Each finding is safe (green), needs a
word (yellow: it may be intended), or is refused (red). Code that ends its process at its import, or is imported for
more than 60 s, is an error.

With --url, the command packs the source here and sends it to the gateway, which does the rest. The key needs the
scope admin.

Exit code 0: the code is in force, or waits for a driver; with --check: everything is safe. Exit code 1: it was not in
force in time, or with --check: something needs a word, or is refused. Exit code 2: the code is refused.

\b
Examples:
  penstock deploy examples/shop --check
  penstock deploy examples/shop
  penstock deploy examples/shop --url https://shop.example --key KEY
  penstock deploy examples/shop --check --data /var/lib/shop --epochs 1000 --json
"""

ROLLBACK_HELP: Final = """Deploy the code of a former deployment again, while the application runs.

Without --to, it is the deployment before the one that is in force. The code comes from the archive in the data
directory, so the source files need not exist any more. The rollback is a deployment of its own: it gets the next
number, and takes effect between two epochs. No request is refused or lost.

Code whose classes cannot read the entities that are stored now is refused, with the reason, and nothing changes.
If the former code lacks a class that has entities now, name the class with --drop: its entities stay stored.

\b
Examples:
  penstock rollback examples/shop
  penstock rollback --data /var/lib/shop --to 2
  penstock rollback --url https://shop.example --key KEY
"""

REMOVE_HELP: Final = """Remove an application from a set of applications, while the others run.

The removal takes effect between two epochs, as a deployment does. It is refused if another application uses an
entity, a stream or a portal of the removed one; the message names them. The only application of a data directory
cannot be removed.

Nothing of the removed application is deleted. Its entities stay stored: SQL, snapshots and history show them, and no
request reaches them. A request to the removed application fails, also one that waits or is scheduled. If the
application is deployed again later, its entities are there again. With --url, a gateway takes the order; its key needs the scope admin.

\b
Examples:
  penstock remove payments --data /var/lib/market
  penstock remove payments --url https://market.example --key KEY
"""

_STYLES: Final = {"safe": "green", "needs-a-word": "yellow", "refused": "bold red"}
_EPOCHS: Final = 100
_ZIP: Final = "application/zip"


def deploy(
    options: AppOptions,
    remote: RemoteOptions,
    check: Annotated[bool, typer.Option("--check", help="Only show the changes.")] = False,
    epochs: Annotated[
        int,
        typer.Option("--epochs", metavar="N", min=0, help="The most epochs that run again."),
    ] = _EPOCHS,
    drop: DropOption = None,
    timeout_s: DeployTimeoutOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Deploy the present code, or check its deployment; see `DEPLOY_HELP`."""
    options.find()
    if not check:
        answer = _deployed(options, remote, timeout_s, drop or [])
        print_result(answer, lambda console: _show_deployment(answer, console), as_json=as_json)
        return
    report = _checked(options, remote, epochs, drop or [])
    print_result(report, lambda console: _show_report(report, console), as_json=as_json)
    if report.verdict != "safe":
        raise typer.Exit(OTHER_ERROR)


def rollback(
    options: AppOptions,
    remote: RemoteOptions,
    number: Annotated[
        int | None,
        typer.Option(
            "--to", metavar="NUMBER", help="The deployment; default: the deployment before."
        ),
    ] = None,
    drop: DropOption = None,
    timeout_s: DeployTimeoutOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Deploy former code again; see `ROLLBACK_HELP`."""
    options.find()
    from penstock.deployment.deploy_order import Rollback

    answer = remote.give(Rollback(number, drop or []), options.place, timeout_s)
    print_result(answer, lambda console: _show_deployment(answer, console), as_json=as_json)


def remove(
    application: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="The module of the application, as penstock apps shows it."
        ),
    ],
    options: DataOptions,
    remote: RemoteOptions,
    timeout_s: DeployTimeoutOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Remove an application from its set; see `REMOVE_HELP`."""
    from penstock.deployment.deploy_order import Removal

    answer = remote.give(Removal(application), options.place, timeout_s)
    print_result(answer, lambda console: _show_deployment(answer, console), as_json=as_json)


def _deployed(
    options: AppOptions, remote: RemoteOptions, timeout_s: float, drop: list[str]
) -> "DeploymentResult":
    """Deploy the present code, and return when it is in force."""
    from penstock.base.deployment_answers import DeploymentResult
    from penstock.cli.progress import ProgressBar
    from penstock.deployment.deploy_order import DeployOrder
    from penstock.orders.order import Place

    if remote.url is None:
        settings = _placed(options)
        with ProgressBar("deployment") as bar:
            place = Place(settings, told=bar.at)
            return DeployOrder(settings.app, drop).carry_out(place, timeout_s)
    archive, query = _packed(_named(options), drop, timeout=timeout_s)
    waits_s = 2 * timeout_s + DeployOrder.way.work_s
    return remote.post(f"/deployments?{query}", archive, _ZIP, DeploymentResult, waits_s)


def _checked(
    options: AppOptions, remote: RemoteOptions, epochs: int, drop: list[str]
) -> "DeploymentReport":
    from penstock.base.deployment_answers import DeploymentReport
    from penstock.deployment.deploy_order import DeployOrder

    if remote.url is None:
        settings = _placed(options)
        from penstock.history.code_report import report_on
        from penstock.views.deployment_check import CHILD

        return report_on(settings, epochs, drop, child=CHILD)
    archive, query = _packed(_named(options), drop, check="true", epochs=epochs)
    waits_s = DeployOrder.way.work_s
    return remote.post(f"/deployments?{query}", archive, _ZIP, DeploymentReport, waits_s)


def _named(options: AppOptions) -> str:
    """Return the application that the command line or a setting names."""
    if not (spec := options.settings().app):
        raise ConfigError(UNNAMED)
    return spec


def _placed(options: AppOptions) -> "Config":
    """Return the settings with application and data directory; this process imports no code."""
    settings = replace(options.settings(), app=_named(options))
    if settings.data != NOWHERE:
        return settings
    from penstock.deployment.guarded_import import application_name

    return replace(settings, data=default_data(application_name(settings.app)))


def _packed(spec: str, drop: Sequence[str], **fields: float | str) -> tuple[bytes, str]:
    """Return the archive of an application's source, and the query string with its name in the archive."""
    from penstock.deployment.archives import pack
    from penstock.deployment.loading import locate
    from penstock.deployment.source import read_source

    location = locate(spec)
    app = f"{location.name}={location.module}" if location.is_set else location.label
    return pack(read_source(location).files), urlencode(
        {"app": app, **fields, "drop": ",".join(drop)}
    )


def _show_deployment(answer: "DeploymentResult", console: "Console") -> None:
    """Print the result for people."""
    for change in answer.changes:
        console.print(change, style="green", highlight=False, markup=False)
    for request in answer.unfit:
        console.print(request, style="yellow", highlight=False, markup=False)
    if not answer.changed:
        console.print("This code is deployed already. Nothing has changed.")
    elif answer.number is None:
        from penstock.orders.order import durable

        console.print(
            f"No driver runs. The deployment is {durable(answer.position)}.", style="yellow"
        )
    else:
        console.print(f"Deployment {answer.number} is in force since epoch {answer.since}.")
        if answer.behind:
            console.print(
                f"Gateways {', '.join(map(str, answer.behind))} still serve the code before; "
                "GET /readyz says why.",
                style="yellow",
            )


def _show_report(report: "DeploymentReport", console: "Console") -> None:
    """Print the report for people."""
    for finding in report.findings:
        line = f"{finding.level:<13} {finding.kind:<10} {finding.what}"
        console.print(line, style=_STYLES[finding.level])
    if report.deployed is None and report.verdict == "safe":
        console.print("the present code is the deployed code")
    console.print(f"verdict: {report.verdict}", style=_STYLES[report.verdict])
