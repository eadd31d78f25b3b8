"""`penstock deploy`: the present code into a running application, or only the changes that this would make."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.error_output import OTHER_ERROR
from penstock.cli.options import (
    NOWHERE,
    UNNAMED,
    AppOptions,
    DeployTimeoutOption,
    DropOption,
    JsonOption,
    default_data,
)
from penstock.cli.orders.deployment import show_deployment
from penstock.cli.output import print_result
from penstock.cli.remote import RemoteOptions
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.base.deployment_answers import DeploymentReport, DeploymentResult
    from penstock.process.config import Config

HELP: Final = """Deploy the present code of an application, while it runs.

The code takes effect between two epochs: requests before that place run with the old code, and all later requests
with the new code, in all processes. No request is lost, and no connection ends. Until a gateway has loaded the new
code, it may answer a read of a changed class with 503, and the read can be sent again. The command stores the
source in the data directory, imports it there in a process of its own, and compares its classes with the stored
entities. Code that cannot be imported, or does not fit, is refused, and nothing changes. A class with stored entities
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

_STYLES: Final = {"safe": "green", "needs-a-word": "yellow", "refused": "bold red"}
_EPOCHS: Final = 100


def command(
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
    """Deploy the present code, or check its deployment; see `HELP`."""
    options.find()
    if not check:
        answer = _deployed(options, remote, timeout_s, drop or ())
        print_result(answer, lambda console: show_deployment(answer, console), as_json=as_json)
        return
    report = (
        _checked_here(options, epochs, drop or ())
        if remote.url is None
        else _checked_there(options, remote, epochs, drop or ())
    )
    print_result(report, lambda console: _show(report, console), as_json=as_json)
    if report.verdict != "safe":
        raise typer.Exit(OTHER_ERROR)


def _checked_there(
    options: AppOptions, remote: RemoteOptions, epochs: int, drop: Sequence[str]
) -> "DeploymentReport":
    """Return the report of a gateway."""
    from penstock.cli.orders.remote_deployment import check_at

    return check_at(remote, _named(options), epochs, drop)


def _named(options: AppOptions) -> str:
    """Return the application that the command line or a setting names."""
    if not (spec := options.settings().app):
        raise ConfigError(UNNAMED)
    return spec


def _checked_here(options: AppOptions, epochs: int, drop: Sequence[str]) -> "DeploymentReport":
    """Return the report about a data directory."""
    settings = _placed(options)
    from penstock.history.code_report import report_on

    return report_on(settings, epochs, drop)


def _placed(options: AppOptions) -> "Config":
    """Return the settings with application and data directory; this process imports no code."""
    settings = replace(options.settings(), app=_named(options))
    if settings.data != NOWHERE:
        return settings
    from penstock.deployment.guarded_import import application_name

    return replace(settings, data=default_data(application_name(settings.app)))


def _deployed(
    options: AppOptions, remote: RemoteOptions, timeout_s: float, drop: Sequence[str]
) -> "DeploymentResult":
    """Deploy the present code, and return when it is in force."""
    if remote.url is None:
        return _deploy_here(options, timeout_s, drop)
    from penstock.cli.orders.remote_deployment import deploy_at

    return deploy_at(remote, _named(options), timeout_s, drop)


def _deploy_here(options: AppOptions, timeout_s: float, drop: Sequence[str]) -> "DeploymentResult":
    """Deploy the present code into a data directory, and wait until it is in force."""
    settings = _placed(options)
    from penstock.deployment.deploy_order import deployed_code, put_in_force, store_code
    from penstock.deployment.dropped_classes import dropped
    from penstock.process.data_directory import DataDirectory

    if DataDirectory(settings.data).app_name is None:
        raise ConfigError(
            f"there is no journal in {settings.data}; start the application first, with penstock run, "
            "or name the directory with --data"
        )
    replaced = deployed_code(settings.data)
    code = store_code(settings.data, settings.app)
    return put_in_force(settings, code, timeout_s, replaced, dropped(drop))


def _show(report: "DeploymentReport", console: "Console") -> None:
    """Print the report for people."""
    for finding in report.findings:
        line = f"{finding.level:<13} {finding.kind:<10} {finding.what}"
        console.print(line, style=_STYLES[finding.level])
    if report.deployed is None and report.verdict == "safe":
        console.print("the present code is the deployed code")
    console.print(f"verdict: {report.verdict}", style=_STYLES[report.verdict])
