"""`penstock capture feed`: take the changes of a database into one stream, until a signal."""

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
from penstock.cli.running.view import named_view
from penstock.errors import ConfigError
from penstock.process import logs
from penstock.process.process_limits import end_with_threads

FEED_HELP: Final = """Take the changes of a database into one stream of an application, until SIGINT or SIGTERM.

The address of the database is the setting captures.NAME.url. penstock run starts this process for each stream that
changes(…) declares.

\b
Examples:
  penstock capture feed examples/strangle crm
  penstock capture feed examples/strangle crm --config production.toml
"""

CaptureWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="APP NAME",
        help="The application, if no option or setting names it; then the stream.",
        show_default=False,
        autocompletion=word_completion.capture_names,
    ),
]


def feed(
    options: DataOptions,
    words: CaptureWords = None,
    supervised: SupervisedOption = False,
    deployed: DeployedOption = False,
    as_json: JsonLogOption = False,
) -> None:
    """Take changes in the foreground; see `FEED_HELP`."""
    options, name = named_view(options, words, "a stream of changes")
    flags = log_flags(as_json=as_json)
    chosen = AppOptions(
        named=options.spec,
        data=options.data,
        config=options.config,
        assignments=options.assignments,
    )
    application, settings = load_to_run(chosen, flags, deployed=deployed)
    captures = application.topology.captures
    if name not in captures:
        from penstock.model.application import unknown

        raise ConfigError(unknown("stream of changes", name, captures))
    try:
        from penstock.captures.capture import serve_capture
    except ImportError as error:
        raise ConfigError(
            f"the stream {name} needs a library: pip install 'penstock[postgres]'"
        ) from error
    from penstock.process.capture_files import ROLE

    logs.configure_service(ROLE, settings.log_format, settings.log_level)
    end_with_threads()
    serve_capture(application, name, settings, supervised=supervised)
