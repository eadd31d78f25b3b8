"""The report of `penstock deploy --check` with the queries of views: the child process of `history.code_report`."""

from collections.abc import Iterator
from typing import BinaryIO, Final

from penstock.base.deployment_answers import DeploymentReport
from penstock.history.code_report import ReportQuestion, made_report
from penstock.history.deployment_check import CheckFinding, Level
from penstock.model.application import App
from penstock.model.views.view import QueryTable
from penstock.process.question import answer_question

CHILD: Final = "penstock.views.deployment_check"


def query_findings(app: App) -> Iterator[CheckFinding]:
    """Yield why queries of an application cannot be tables of its views."""
    for plan in app.views.values():
        if any(isinstance(table, QueryTable) for table in plan.tables):
            # DuckDB is loaded for these tables only.
            from penstock.views.query_tables import checked_queries  # noqa: PLC0415

            _, complaints = checked_queries(app, plan)
            for complaint in complaints:
                yield CheckFinding(Level.REFUSED, "view", f"view {plan.name}, {complaint}")


def _report(question: ReportQuestion, answer_file: BinaryIO) -> DeploymentReport:
    return made_report(question, answer_file, query_findings)


if __name__ == "__main__":
    answer_question(ReportQuestion, _report)
