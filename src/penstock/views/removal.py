"""The removal of a view's tables from a store outside of the data directory, in a process of its own.

    python -m penstock.views.removal < question > answer

The libraries of a store, and a store that does not answer, stay out of the process that takes the order. Only tables that
this data directory has filled are removed: the position in the target says which.
"""

from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from penstock.errors import RequestError
from penstock.model.target_choice import TargetChoice
from penstock.model.views.view import ViewPlan
from penstock.orders.view_orders import TablesOfView
from penstock.process.question import answer_question
from penstock.views.target import Overtaken, TargetProblem
from penstock.views.targets import open_target


def removed(view: TablesOfView) -> str:
    """Remove the tables of a view, and return the rest of the work as text; usually empty.

    Raises:
        ConfigError: The setting with the address is missing or wrong, or a library is missing.
        RequestError: The tables are not of this data directory, or cannot be removed now.
    """
    plan = ViewPlan(view.name, TargetChoice(view.kind, schema=view.schema), (), "")
    target = open_target(plan, view.address, Path(view.folder), view.properties)
    with closing(target):
        try:
            position = target.position().position
            if position is None:
                raise RequestError(
                    f"the address of view {view.name} leads to a place without its tables"
                )
            if position.journal != view.journal:
                raise RequestError(
                    f"the tables of view {view.name} were filled from another data directory"
                )
            target.drop(position)
        except (TargetProblem, Overtaken) as error:
            raise RequestError(
                f"the tables of view {view.name} cannot be removed: {error}"
            ) from error
        try:
            target.purge()
        except TargetProblem as error:
            return f"the tables are removed, and their rows are still in the files: {error}"
    return ""


def main() -> None:
    """Answer the question on standard input."""

    def work(view: TablesOfView, _answer_file: BinaryIO) -> str:
        return removed(view)

    answer_question(TablesOfView, work)


if __name__ == "__main__":
    main()
