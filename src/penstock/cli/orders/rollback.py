"""`penstock rollback`: deploy the code of a former deployment again."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.options import AppOptions, DeployTimeoutOption, DropOption, JsonOption
from penstock.cli.output import print_result
from penstock.cli.remote import RemoteOptions
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.base.deployment_answers import DeploymentResult

HELP: Final = """Deploy the code of a former deployment again, while the application runs.

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


def command(
    options: AppOptions,
    remote: RemoteOptions,
    number: Annotated[
        int | None,
        typer.Option("--to", metavar="NUMBER", help="The deployment; default: the one before."),
    ] = None,
    drop: DropOption = None,
    timeout_s: DeployTimeoutOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Deploy former code again; see `HELP`."""
    from penstock.cli.orders.deployment import show_deployment

    if remote.url is not None:
        from penstock.cli.orders.remote_deployment import roll_back_at

        answer = roll_back_at(remote, number, timeout_s, drop or ())
    else:
        answer = _roll_back(options, number, timeout_s, drop or ())
    print_result(answer, lambda console: show_deployment(answer, console), as_json=as_json)


def _roll_back(
    options: AppOptions, number: int | None, timeout_s: float, drop: Sequence[str]
) -> "DeploymentResult":
    """Deploy former code of the data directory again, and wait until it is in force."""
    settings = replace(options.settings(), data=options.folder())
    from penstock.deployment.deploy_order import former_code, put_in_force
    from penstock.deployment.dropped_classes import dropped
    from penstock.files.layout import JOURNAL
    from penstock.journal.deployments import Deployments

    if not (settings.data / JOURNAL).is_dir():
        raise ConfigError(
            f"there is no journal in {settings.data}; name the application's directory with --data"
        )
    code = former_code(Deployments(settings.data / JOURNAL).every(), number)
    return put_in_force(settings, code, timeout_s, drop=dropped(drop))
