"""`penstock view`: run an application's SQL view in the foreground, until a signal."""

from typing import Final

from penstock.cli.options import (
    AppOptions,
    DeployedOption,
    JsonLogOption,
    SupervisedOption,
    log_flags,
    with_deployed_code,
)
from penstock.cli.running.replaced_source import load_to_run
from penstock.process import logs
from penstock.process.process_limits import end_with_threads

HELP: Final = """Run an application's SQL view alone: it follows the journal and answers queries.

The gateways of the same data directory pass POST /sql on to the view, and penstock sql queries it.
The view is a cache: if its file is lost or damaged, the view rebuilds it from the journal and logs
this. penstock run starts the view together with a driver and gateways.

If a deployment has replaced the source since it ran, the command runs that deployment, and says so.

\b
Examples:
  penstock view examples/shop
  penstock view examples/shop --data /var/lib/shop --set view.memory_mb=4096
"""


def command(
    options: AppOptions,
    supervised: SupervisedOption = False,
    deployed: DeployedOption = False,
    as_json: JsonLogOption = False,
) -> None:
    """Run a view in the foreground; see `HELP`."""
    flags = log_flags(as_json=as_json)
    application, settings = (
        with_deployed_code(options).load(**flags) if deployed else load_to_run(options, flags)
    )
    from penstock.sql.server import ROLE, serve_view

    logs.configure_service(ROLE, settings.log_format, settings.log_level)
    end_with_threads()
    serve_view(application, settings.app, settings, supervised=supervised)
