"""`penstock explain`: the dataflow graph of an application, without running it.

Warnings are part of the output and do not change the exit code.
"""

from enum import StrEnum, unique
from typing import Annotated, Final

import typer

from penstock.cli.options import AppOptions, JsonOption
from penstock.dataflow.document import plan_json
from penstock.dataflow.mermaid import plan_mermaid
from penstock.dataflow.text import plan_text

HELP: Final = """Show the dataflow graph of an application: entities, streams, workflows, portals, and the calls between them.

The graph is read from the source; the application is imported and not run. A * marks calls whose
target is known only when they run. Warnings name lines that would make replay differ, such as calls
to other services, and give the remedy.

With --data, the command also checks that the stored entities in DIR fit the declared classes. If they
do not, the exit code is 2, and every command refuses the application there.

\b
Examples:
  penstock explain examples/shop
  penstock explain shop:app --format json
  penstock explain examples/shop --data /var/lib/shop
  penstock explain examples/shop --format mermaid > shop.mmd
"""


@unique
class ExplainFormat(StrEnum):
    """The output format of a plan."""

    TEXT = "text"
    JSON = "json"
    MERMAID = "mermaid"


_PRINTERS: Final = {
    ExplainFormat.TEXT: plan_text,
    ExplainFormat.JSON: plan_json,
    ExplainFormat.MERMAID: plan_mermaid,
}


def command(
    options: AppOptions,
    form: Annotated[
        ExplainFormat, typer.Option("--format", "-f", help="For people, programs, or a diagram.")
    ] = ExplainFormat.TEXT,
    as_json: JsonOption = False,
) -> None:
    """Print the plan of an application.

    Raises:
        ConfigError: The application cannot be found or imported.
        DefinitionError: It is defined wrongly.
        ClassChanged: With `--data`: a class is declared differently from its stored entities.
    """
    application, _ = options.load_unchecked() if options.data is None else options.load()
    from penstock.dataflow.analysis.analyze import analyze_app

    chosen = ExplainFormat.JSON if as_json else form
    typer.echo(_PRINTERS[chosen](analyze_app(application)), nl=False)
