"""`penstock view serve` and `penstock view feed`: run the SQL view, or the applier of a view, until a signal."""

from dataclasses import replace
from typing import Annotated, Final

import typer

from penstock.cli import word_completion
from penstock.cli.options import (
    AppOptions,
    DataOptions,
    DeployedOption,
    JsonLogOption,
    SupervisedOption,
    log_flags,
)
from penstock.cli.running.replaced_source import load_to_run
from penstock.errors import ConfigError
from penstock.process import logs
from penstock.process.process_limits import end_with_threads

SERVE_HELP: Final = """Run an application's SQL view alone: it follows the journal and answers queries.

The gateways of the same data directory pass POST /sql on to the view, and penstock sql queries it.
The view is a cache: if its file is lost or damaged, the view rebuilds it from the journal and logs
this. penstock run starts the view together with a driver and gateways.

If a deployment has replaced the source since it ran, the command runs that deployment, and says so.

\b
Examples:
  penstock view serve examples/shop
  penstock view serve examples/shop --data /var/lib/shop --set view.memory_mb=4096
"""

FEED_HELP: Final = """Feed one view of an application from the journal, until SIGINT or SIGTERM.

The process is the applier of the view: it fills the tables in the target, and then applies each epoch. The address of
the target is the setting views.NAME.url. penstock run starts an applier for each view.

\b
Examples:
  penstock view feed examples/shop reporting
  penstock view feed examples/shop reporting --config production.toml
"""

WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="APP NAME",
        help="The application, if no option or setting names it; then the view.",
        show_default=False,
        autocompletion=word_completion.view_names,
    ),
]


def serve(
    options: AppOptions,
    supervised: SupervisedOption = False,
    deployed: DeployedOption = False,
    as_json: JsonLogOption = False,
) -> None:
    """Run the SQL view in the foreground; see `SERVE_HELP`."""
    flags = log_flags(as_json=as_json)
    application, settings = load_to_run(options, flags, deployed=deployed)
    from penstock.sql_view.server import ROLE, serve_view

    logs.configure_service(ROLE, settings.log_format, settings.log_level)
    end_with_threads()
    from penstock.process.metrics import count_store_requests

    count_store_requests(settings.data)
    serve_view(application, settings.app, settings, supervised=supervised)


def feed(
    options: DataOptions,
    words: WordsArgument = None,
    supervised: SupervisedOption = False,
    deployed: DeployedOption = False,
    as_json: JsonLogOption = False,
) -> None:
    """Run the applier of a view in the foreground; see `FEED_HELP`."""
    options, name = named_view(options, words)
    flags = log_flags(as_json=as_json)
    chosen = AppOptions(
        named=options.spec,
        data=options.data,
        config=options.config,
        assignments=options.assignments,
    )
    application, settings = load_to_run(chosen, flags, deployed=deployed)
    if name not in application.views:
        from penstock.model.application import unknown

        raise ConfigError(unknown("view", name, application.views))
    from penstock.process.view_files import ROLE
    from penstock.views.applier import serve_applier

    logs.configure_service(ROLE, settings.log_format, settings.log_level)
    end_with_threads()
    serve_applier(application, name, settings, supervised=supervised)


def named_view(
    options: DataOptions, words: list[str] | None, what: str = "a view"
) -> tuple[DataOptions, str]:
    """Return the options with the application that the words name, and the view.

    Args:
        words: `APP NAME`, or `NAME` if options or settings name the application or its data directory.
        what: What the name is of.
    """
    match words:
        case [name]:
            return options, name
        case [app, name]:
            return replace(options, named=app), name
        case _:
            raise ConfigError(f"write the name of {what}; before it, the application: APP NAME")
