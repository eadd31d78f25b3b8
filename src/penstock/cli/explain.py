"""`penstock explain`: the dataflow graph of an application, without running it.

What the compiler found is printed to standard output as it is, so that it can be piped; the exit
code says nothing of warnings. Errors in the application are left to the main module to show.
"""

from enum import StrEnum, unique
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.options import AppArgument
from penstock.dataflow.analysis.analyze import analyze_app
from penstock.dataflow.document import plan_json
from penstock.dataflow.mermaid import plan_mermaid
from penstock.dataflow.text import plan_text
from penstock.process.data_directory import DataDirectory
from penstock.process.loading import load_app

HELP: Final = """Show the dataflow graph of an application: its entities, and who calls whom.

The graph is read from the source; nothing of the application runs but its imports. A * marks
calls whose target only the run tells. Warnings name lines that would make replay differ, such as
calls to other services, and say what to do instead.

With --data it also says whether the entities that DIR holds are stored as the classes are declared;
where they are not, every command refuses the application there. The exit code is 2 then.

\b
Examples:
  penstock explain examples/shop
  penstock explain shop:app --format json
  penstock explain examples/shop --data /var/lib/shop
  penstock explain examples/shop --format mermaid > shop.mmd
"""


@unique
class Format(StrEnum):
    """How a plan is printed."""

    TEXT = "text"
    JSON = "json"
    MERMAID = "mermaid"


_PRINTERS: Final = {
    Format.TEXT: plan_text,
    Format.JSON: plan_json,
    Format.MERMAID: plan_mermaid,
}


def explain(
    app: AppArgument,
    form: Annotated[
        Format, typer.Option("--format", "-f", help="For people, programs, or a drawing.")
    ] = Format.TEXT,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Compare with what is stored there, too."),
    ] = None,
) -> None:
    """Print the plan of an application.

    Raises:
        ConfigError: The application cannot be found or imported.
        DefinitionError: It is defined wrongly.
        ClassChanged: A class is declared otherwise than its entities are stored.
    """
    application = load_app(app)
    if data is not None:
        DataDirectory(data).check_app(application)
    typer.echo(_PRINTERS[form](analyze_app(application)), nl=False)
