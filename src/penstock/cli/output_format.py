"""`OutputFormat`: the forms in which a command prints the rows of a query."""

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.sql_view.result_format import ResultFormat


class OutputFormat(StrEnum):
    """The output format of a result."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    LINES = "lines"
    ARROW = "arrow"

    @property
    def result_format(self) -> "ResultFormat":
        """The format of the answer that the command asks for; a table is made of Arrow columns."""
        from penstock.sql_view.result_format import ResultFormat

        return ResultFormat["ARROW" if self is OutputFormat.TABLE else self.name]
