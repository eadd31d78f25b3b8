"""`penstock effects serve`: call the effects of an application alone, until a signal."""

import os
from typing import Final

from penstock.cli.options import (
    AppOptions,
    DeployedOption,
    JsonLogOption,
    SupervisedOption,
    log_flags,
)
from penstock.cli.running.replaced_source import load_to_run
from penstock.process import logs
from penstock.process.process_limits import end_with_threads

SERVE_HELP: Final = """Call the effects of an application, until SIGINT or SIGTERM.

The process follows the journal, calls the functions marked @effect that wait, and appends their outcomes to the log. penstock run
starts it for an application with effects. A second one waits until the first one ends.

\b
Examples:
  penstock effects serve examples/travel
  penstock effects serve examples/travel --set effects.secrets=/etc/travel.secrets
"""


def serve(
    options: AppOptions,
    supervised: SupervisedOption = False,
    deployed: DeployedOption = False,
    as_json: JsonLogOption = False,
) -> None:
    """Call effects in the foreground; see `SERVE_HELP`."""
    flags = log_flags(as_json=as_json)
    application, settings = load_to_run(options, flags, deployed=deployed)
    from penstock.effects.service import serve_effects
    from penstock.process.effect_files import ROLE

    logs.configure_service(ROLE, settings.log_format, settings.log_level)
    end_with_threads()
    serve_effects(application, settings, os.environ, supervised=supervised)
