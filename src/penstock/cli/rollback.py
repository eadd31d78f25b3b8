"""`penstock rollback`: deploy the code of a former deployment again."""

from dataclasses import replace
from typing import Annotated, Final

import typer

from penstock.cli.options import AppOptions, DeployTimeoutOption, JsonOption
from penstock.cli.output import print_result
from penstock.errors import ConfigError

HELP: Final = """Deploy the code of a former deployment again, while the application runs.

Without --to, it is the deployment before the one that is in force. The code comes from the archive in the data
directory, so the source files need not exist any more. The rollback is a deployment of its own: it gets the next
number, and takes effect between two epochs. No request is refused or lost.

Code whose classes cannot read the entities that are stored now is refused, with the reason, and nothing changes.

\b
Examples:
  penstock rollback examples/shop
  penstock rollback --data /var/lib/shop --to 2
"""


def command(
    options: AppOptions,
    number: Annotated[
        int | None,
        typer.Option("--to", metavar="NUMBER", help="The deployment; default: the one before."),
    ] = None,
    timeout_s: DeployTimeoutOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Deploy former code again; see `HELP`."""
    settings = replace(options.settings(), data=options.folder())
    from penstock.cli.deployment import put_in_force, show_deployment
    from penstock.files.layout import JOURNAL
    from penstock.journal.deployments import Deployments
    from penstock.process.live_deployment import former_code

    if not (settings.data / JOURNAL).is_dir():
        raise ConfigError(
            f"there is no journal in {settings.data}; name the application's directory with --data"
        )
    code = former_code(Deployments(settings.data / JOURNAL).every(), number)
    answer = put_in_force(settings, code, timeout_s)
    print_result(answer, lambda console: show_deployment(answer, console), as_json=as_json)
