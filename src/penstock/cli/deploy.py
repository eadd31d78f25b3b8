"""`penstock deploy`: the present code into a running application, or only the changes that this would make."""

import sys
from collections.abc import Sequence
from contextlib import closing, redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.cli.deployment import show_deployment
from penstock.cli.error_output import OTHER_ERROR
from penstock.cli.options import (
    NOWHERE,
    UNNAMED,
    AppOptions,
    DeployTimeoutOption,
    DropOption,
    JsonOption,
)
from penstock.cli.output import print_result
from penstock.cli.progress import epoch_progress
from penstock.cli.remote import RemoteOptions
from penstock.errors import ClassChanged, ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.base.deployment_answers import DeploymentResult
    from penstock.history.deployment_check import CheckFinding
    from penstock.model.application import App
    from penstock.process.config import Config

HELP: Final = """Deploy the present code of an application, while it runs.

The code takes effect between two epochs: requests before that place run with the old code, and all later requests
with the new code, in all processes. No request is lost, and no connection ends. Until a gateway has loaded the new
code, it may answer a read of a changed class with 503, and the read can be sent again. The command stores the
source in the data directory, imports it there in a process of its own, and compares its classes with the stored
entities. Code that cannot be imported, or does not fit, is refused, and nothing changes. A class with stored entities
that has disappeared from the source is refused, unless --drop names it: its entities stay stored, SQL and
history show them, and no request reaches them. The command ends when
all gateways serve the new code, or after --timeout and then names those that do not. If no driver runs, the
deployment waits in the log for the next start.

If the data directory, named with --data, has a set of applications, APP is the application to deploy: the others stay
as they are deployed. Their interfaces are compared with APP.

With --check, the command deploys nothing; of a set it stores an archive, which maintenance removes. It compares the present code with the last deployment (penstock
apps shows it): the stored form of classes; methods, functions, routes and streams; and the requests that wait in
the log. It runs the newest epochs of that deployment again with the present code, and says how many replies and
entities would have come out otherwise; penstock what-if --code shows them. Each finding is safe (green), needs a
word (yellow: it may be intended), or is refused (red).

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
    if report["verdict"] != "safe":
        raise typer.Exit(OTHER_ERROR)


def _checked_there(
    options: AppOptions, remote: RemoteOptions, epochs: int, drop: Sequence[str]
) -> dict[str, Any]:
    """Return the report of a gateway as a JSON object."""
    from msgspec import to_builtins

    from penstock.cli.remote_deployment import check_at

    report: dict[str, Any] = to_builtins(check_at(remote, _named(options), epochs, drop))
    return report


def _named(options: AppOptions) -> str:
    """Return the application that the command line or a setting names."""
    if not (spec := options.settings().app):
        raise ConfigError(UNNAMED)
    return spec


def _checked_here(options: AppOptions, epochs: int, drop: Sequence[str]) -> dict[str, Any]:
    """Return the report about a data directory as a JSON object."""
    application, settings = options.load_unchecked(app=_whole_set(options))
    from penstock.process.data_directory import DataDirectory

    if DataDirectory(settings.data).app_name is None:
        raise ConfigError(f"there is no journal in {settings.data}; name the directory with --data")
    return _report(application, settings, epochs, drop)


def _whole_set(options: AppOptions) -> str | None:
    """Return the deployed set of applications with the named ones; None if no set is deployed."""
    from penstock.process.deployed_set import with_applications
    from penstock.process.live_deployment import deployed_code

    settings = options.settings()
    if settings.data == NOWHERE or not settings.app:
        return None
    return with_applications(settings.data, deployed_code(settings.data), settings.app)


def _deployed(
    options: AppOptions, remote: RemoteOptions, timeout_s: float, drop: Sequence[str]
) -> "DeploymentResult":
    """Deploy the present code, and return when it is in force."""
    if remote.url is None:
        return _deploy_here(options, timeout_s, drop)
    from penstock.cli.remote_deployment import deploy_at

    return deploy_at(remote, _named(options), timeout_s, drop)


def _deploy_here(options: AppOptions, timeout_s: float, drop: Sequence[str]) -> "DeploymentResult":
    """Deploy the present code into a data directory, and wait until it is in force."""
    settings = replace(options.settings(), app=_named(options))
    if settings.data == NOWHERE:  # else this process need not import the code
        settings = replace(settings, data=options.folder())
    from penstock.process.data_directory import DataDirectory
    from penstock.process.dropped_classes import dropped
    from penstock.process.live_deployment import deployed_code, put_in_force, store_code

    if DataDirectory(settings.data).app_name is None:
        raise ConfigError(
            f"there is no journal in {settings.data}; start the application first, with penstock run, "
            "or name the directory with --data"
        )
    replaced = deployed_code(settings.data)
    code = store_code(settings.data, settings.app)
    return put_in_force(settings, code, timeout_s, replaced, dropped(drop))


def _report(
    application: "App", settings: "Config", epochs: int, drop: Sequence[str]
) -> dict[str, Any]:
    """Return the report as a JSON object; raises as `_compared`."""
    from penstock.history.deployment_check import CheckFinding, Level

    try:
        return _compared(application, settings, epochs, drop)
    except ClassChanged as error:
        return _plain(None, Level.REFUSED, [CheckFinding(Level.REFUSED, "schema", str(error))])


def _compared(
    application: "App", settings: "Config", epochs: int, drop: Sequence[str]
) -> dict[str, Any]:
    """Return the report about code that the stored entities may fit.

    Args:
        application: The application with the present code.
        settings: Its settings.
        epochs: How many of the newest epochs run again.
        drop: The stored classes to remove.

    Raises:
        ClassChanged: A class cannot read its stored entities.
        ConfigError: The deployed code cannot be imported any more, or a class to remove is not stored, or still there.
        IntegrityError: A file of the data directory is damaged.
    """
    from penstock.history.code_versions import CodeVersions
    from penstock.history.deployment_check import (
        CheckFinding,
        Level,
        check_backlog,
        compare_interfaces,
        compare_unstored,
        dry_run,
        findings_of,
        findings_of_schemas,
        level_of,
    )
    from penstock.history.reader import HistoryReader
    from penstock.process.data_directory import DataDirectory
    from penstock.process.dropped_classes import dropped
    from penstock.process.migration_trial import try_migrations

    directory = DataDirectory(settings.data)
    journal = directory.open_journal(application, dropped=drop)
    findings = findings_of_schemas(journal.schema_changes())
    dropped(drop).require(application.removed)
    with (
        closing(journal),
        HistoryReader(settings.data, application, "deploy --check", drop) as past,
        CodeVersions(past, application, settings.app) as versions,
        redirect_stdout(sys.stderr),
    ):
        tried = try_migrations(directory, application, journal)
        findings += [CheckFinding(Level.SAFE, "schema", line) for line in tried]
        following = Epoch(past.last + 1)
        deployed = versions.at(following)
        if past.last != BEFORE_FIRST and not versions.has_deployment(following):
            what = "no deployment is recorded, so only the stored form of the classes is compared"
            findings.append(CheckFinding(Level.WORD, "interface", what))
        findings += compare_unstored(deployed.app, application, journal.schemas())
        findings += compare_interfaces(deployed.app, application)
        findings += check_backlog(settings.data, journal, deployed.app, application)
        with epoch_progress((past.first, past.last)) as progress:
            run = dry_run(past, deployed, application, settings.limits, epochs, progress)
        findings += [] if run is None else findings_of(run)
    return _plain(deployed.deployment, level_of(findings), findings)


def _plain(deployed: int | None, verdict: str, findings: "list[CheckFinding]") -> dict[str, Any]:
    return {
        "deployed": deployed,
        "verdict": verdict,
        "findings": [
            {"level": finding.level, "kind": finding.kind, "what": finding.what}
            for finding in findings
        ],
    }


def _show(report: dict[str, Any], console: "Console") -> None:
    """Print the report for people."""
    for finding in report["findings"]:
        level = finding["level"]
        console.print(f"{level:<13} {finding['kind']:<10} {finding['what']}", style=_STYLES[level])
    if report["deployed"] is None and report["verdict"] == "safe":
        console.print("the present code is the deployed code")
    console.print(f"verdict: {report['verdict']}", style=_STYLES[report["verdict"]])
