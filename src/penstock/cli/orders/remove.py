"""`penstock remove`: remove an application from the set that runs in one Penstock."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.options import DataOptions, DeployTimeoutOption, JsonOption
from penstock.cli.output import print_result
from penstock.cli.remote import RemoteOptions

if TYPE_CHECKING:
    from penstock.base.deployment_answers import DeploymentResult

HELP: Final = """Remove an application from a set of applications, while the others run.

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


def command(
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
    """Remove an application; see `HELP`."""
    from penstock.cli.orders.deployment import show_deployment

    if remote.url is not None:
        from penstock.cli.orders.remote_deployment import remove_at

        answer = remove_at(remote, application, timeout_s)
    else:
        answer = _removed(options, application, timeout_s)
    print_result(answer, lambda console: show_deployment(answer, console), as_json=as_json)


def _removed(options: DataOptions, application: str, timeout_s: float) -> "DeploymentResult":
    """Remove an application from the set of the data directory, and wait until this is in force."""
    settings = replace(options.settings(), data=options.folder())
    from penstock.deployment.deploy_order import deployed_code, put_in_force, store_without
    from penstock.deployment.dropped_classes import classes_in_force

    replaced = deployed_code(settings.data)
    code = store_without(settings.data, application)
    return put_in_force(settings, code, timeout_s, replaced, classes_in_force(settings.data))
