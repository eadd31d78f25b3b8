"""`penstock view`: an application's SQL view, in the foreground, until a signal stops it."""

from typing import Final

from penstock.cli.application import application_of
from penstock.cli.options import (
    AppArgument,
    ConfigOption,
    DataOption,
    SetOption,
    SupervisedOption,
)
from penstock.process import logs
from penstock.process.threads import end_with_threads
from penstock.sql.server import ROLE, serve_view

HELP: Final = """Run an application's SQL view alone: it follows the journal and answers queries.

The gateways of the same data directory pass POST /sql on to it, and penstock sql asks it. It is a
cache: what is lost or damaged of it is made anew from the journal, which its log says. penstock run
starts it together with a driver and gateways.

\b
Examples:
  penstock view examples/shop
  penstock view examples/shop --data /var/lib/shop --set view.memory_mb=4096
"""


def view(
    app: AppArgument,
    data: DataOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    supervised: SupervisedOption = False,  # noqa: FBT002 -- a flag
) -> None:
    """Run a view in the foreground; see `HELP`."""
    application, settings = application_of(app, data=data, file=config, assignments=assignments)
    logs.configure(ROLE, settings.log_format, settings.log_level)
    end_with_threads()
    serve_view(application, app, settings, supervised=supervised)
