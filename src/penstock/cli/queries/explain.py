"""`penstock explain`: the dataflow graph of an application, without running it.

Warnings are part of the output and do not change the exit code.
"""

from enum import StrEnum, unique
from typing import Annotated, Final

import typer

from penstock.cli.options import AppOptions, JsonOption
from penstock.cli.remote import RemoteOptions
from penstock.dataflow.mermaid import plan_mermaid
from penstock.dataflow.rates import NO_RATES, Rates
from penstock.dataflow.text import plan_json, plan_text
from penstock.errors import ConfigError

HELP: Final = """Show the dataflow graph of an application: entities, streams, workflows, portals and views, and the calls between them.

The graph is read from the source; the application is imported and not run. A * marks calls whose
target is known only when they run. Warnings name lines that would make replay differ, such as calls
to other services, and give the remedy. The output lists the methods and workflows with a time limit of their
own, @limit(time=...): each of them may delay all other requests for that time.

With --url, the output also shows the rates of a running application over the last seconds: the events of each
stream, the calls of each edge, and the lag of each workflow that has one.

With --data, the command also checks that the stored entities in DIR fit the declared classes. If they
do not, the exit code is 2, and every command refuses the application there. The text then ends with the place of the log: a file, or
a topic of Kafka.

\b
Examples:
  penstock explain examples/shop
  penstock explain shop:app --format json
  penstock explain examples/shop --data /var/lib/shop
  penstock explain examples/shop --format mermaid > shop.mmd
  penstock explain examples/shop --format scopes
  penstock explain examples/shop --url http://127.0.0.1:8000
"""


@unique
class ExplainFormat(StrEnum):
    """The output format of a plan."""

    TEXT = "text"
    JSON = "json"
    MERMAID = "mermaid"
    SCOPES = "scopes"


_PRINTERS: Final = {
    ExplainFormat.TEXT: plan_text,
    ExplainFormat.JSON: plan_json,
    ExplainFormat.MERMAID: plan_mermaid,
}


def command(
    options: AppOptions,
    remote: RemoteOptions,
    form: Annotated[
        ExplainFormat,
        typer.Option(
            "--format",
            "-f",
            help="text for people, json for programs, mermaid for a diagram, scopes for the public requests and their scopes.",
        ),
    ] = ExplainFormat.TEXT,
    as_json: JsonOption = False,
) -> None:
    """Print the plan of an application."""
    has_data = options.data is not None
    application, settings = options.load() if has_data else options.load_unchecked()
    from penstock.dataflow.analysis.analyze import analyze_app
    from penstock.deployment.source import loaded_code

    loaded_code(settings.app)  # a source that `run` refuses is refused here

    chosen = ExplainFormat.JSON if as_json else form
    if chosen is ExplainFormat.SCOPES:
        from penstock.dataflow.public_surface import surface_text

        typer.echo(surface_text(application), nl=False)
        return
    rates = NO_RATES if remote.url is None else _rates_at(remote, application.name)
    text = _PRINTERS[chosen](analyze_app(application), rates)
    typer.echo(text, nl=False)
    if has_data and chosen is ExplainFormat.TEXT:
        from penstock.process.data_directory import DataDirectory

        typer.echo(f"\nlog: {DataDirectory(settings.data).log_text()}")


def _rates_at(remote: RemoteOptions, app: str) -> Rates:
    """Return the rates that a gateway measures."""
    from penstock.process.status import ApplicationStatus

    seen = remote.get("/console/api/status", ApplicationStatus)
    if seen.app != app:
        raise ConfigError(f"{remote.url} serves the application {seen.app}, and not {app}")
    return seen.rates
