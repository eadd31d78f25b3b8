"""The differences that a recorded deployment has made, in the words of `penstock deploy --check`.

    python -m penstock.history.deployment_difference < DifferenceQuestion > DifferenceAnswer

`deployment_difference` is the caller's side. The child imports both versions from their archives, because their code may
do everything.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.deployment_answers import CheckedChange, DeploymentReport
from penstock.deployment.archives import Archives
from penstock.deployment.code_in_force import unpacked
from penstock.deployment.side_modules import load_aside
from penstock.errors import ConfigError, Gone, TimedOut
from penstock.files.roots import journal_root
from penstock.history.deployment_check import CheckFinding, Level, compare_interfaces, level_of
from penstock.journal.deployments import Deployment, Deployments
from penstock.journal.shapes import Shapes
from penstock.model.application import App
from penstock.model.control import DeployedCode
from penstock.model.versions.schema_change import compare_classes
from penstock.process.question import ChildEnded, answer_question, ask_child

WORK_S: Final = 60.0


class DifferenceQuestion(msgspec.Struct, frozen=True):
    """The data directory, the codes before and after a deployment, and the first epoch of the second."""

    data: Path
    former: DeployedCode
    code: DeployedCode
    since: int


def deployment_difference(data: Path, number: int, work_s: float = WORK_S) -> DeploymentReport:
    """Return the differences between a deployment and the deployment before it; none for the first one.

    Args:
        work_s: How long the imports and the comparison may take.
    """
    every = Deployments(journal_root(data)).every()
    if not 1 <= number <= len(every):
        raise ConfigError(
            f"there is no deployment {number}; the newest one has the number {len(every)}"
        )
    if number == 1:
        return DeploymentReport(None, Level.SAFE, [])
    former, deployment = every[number - 2 : number]
    findings = _asked(data, former, deployment, work_s)
    changes = [CheckedChange(each.level, each.kind, each.what) for each in findings]
    return DeploymentReport(former.number, level_of(findings), changes)


def _asked(
    data: Path, former: Deployment, deployment: Deployment, work_s: float
) -> list[CheckFinding]:
    for each in (former, deployment):
        if not Archives(data).has(each.code.archive):
            raise Gone(
                f"the source of deployment {each.number} is not there any more: retention has removed its epochs"
            )
    question = DifferenceQuestion(data.absolute(), former.code, deployment.code, deployment.since)
    child = "penstock.history.deployment_difference"
    try:
        return ask_child(child, question, list[CheckFinding], work_s)
    except TimeoutError as error:
        raise TimedOut(f"the imports of both versions have taken more than {work_s:g} s") from error
    except ChildEnded as ended:
        raise ConfigError(
            f"the imports ended their process with exit code {ended.exit_code}"
        ) from ended


def _findings(question: DifferenceQuestion) -> Iterator[CheckFinding]:
    was = load_aside(unpacked(question.data, question.former)).app
    now = load_aside(unpacked(question.data, question.code)).app
    yield from _class_changes(question, now)
    yield from compare_interfaces(was, now)


def _class_changes(question: DifferenceQuestion, now: App) -> Iterator[CheckFinding]:
    """Compare the classes as they were stored before the deployment with the classes that it has brought."""
    for name, versions in Shapes(journal_root(question.data), {}).versions().items():
        before = tuple(version for version in versions if version.since < question.since)
        if before and name in now.stored:
            comparison = compare_classes({name: before}, now.stored, question.since)
            for change in comparison.changes:
                for line in change.changes:
                    yield CheckFinding(Level.SAFE, "schema", f"{name}: {line}")


if __name__ == "__main__":
    answer_question(DifferenceQuestion, lambda question, _: list(_findings(question)))
