"""The report of `penstock deploy --check`, made in a process of its own: code may never return, or end its process.

`report_on` is the caller's side; an incomplete answer is an error, so code that ends the process is never
called safe. The child changes nothing.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from penstock.base.deployment_answers import CheckedChange, DeploymentReport
from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.deployment.deploy_order import deployed_code
from penstock.deployment.deployed_set import member_changes, with_applications
from penstock.deployment.dropped_classes import dropped
from penstock.deployment.guarded_import import IMPORT_S, ask_importing, import_guarded
from penstock.deployment.index_trial import try_indexes
from penstock.deployment.loading import locate
from penstock.deployment.migration_trial import try_migrations
from penstock.deployment.source import code_of
from penstock.errors import ClassChanged, ConfigError, MigrationFailed, TimedOut, Unencodable
from penstock.history.code_versions import CodeVersions
from penstock.history.deployment_check import (
    CheckFinding,
    Level,
    check_backlog,
    check_waits,
    compare_interfaces,
    compare_unstored,
    dry_run,
    findings_of,
    findings_of_schemas,
    level_of,
)
from penstock.history.reader import HistoryReader
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.question import ChildEnded, answer_question

if TYPE_CHECKING:
    from penstock.model.application import App


class ReportQuestion(msgspec.Struct, frozen=True):
    """The settings, which name application and data directory, the epochs to run again, the classes that the code may lack, and the time of the import."""

    settings: Config
    epochs: int
    drop: tuple[str, ...]
    import_s: float


def report_on(
    settings: Config,
    epochs: int,
    drop: Sequence[str] = (),
    *,
    import_s: float = IMPORT_S,
    work_s: float | None = None,
    child: str = "penstock.history.code_report",
) -> DeploymentReport:
    """Return the changes that a deployment of the present code would make.

    Args:
        settings: The settings, which name the application and the data directory. If a set of applications is deployed,
            the others of the set stay as they are deployed.
        epochs: How many of the newest epochs run again.
        drop: The stored classes to remove.
        import_s: The seconds that the import may take.
        work_s: The seconds that the whole report may take; None: as long as it needs.
        child: The module that makes the report, with `made_report`.
    """
    if DataDirectory(settings.data).app_name is None:
        raise ConfigError(f"{settings.data} has no journal; name the directory with --data")
    spec = with_applications(settings.data, deployed_code(settings.data), settings.app)
    module = locate(spec).module
    settings = replace(settings, app=spec, data=settings.data.absolute())
    question = ReportQuestion(settings, epochs, tuple(drop), import_s)
    try:
        return ask_importing(child, question, DeploymentReport, module, import_s, work_s)
    except TimeoutError as error:
        raise TimedOut(f"the check has taken more than {work_s:g} s") from error
    except ChildEnded as ended:
        raise ConfigError(
            f"a handler of {module}, or a function with @migrate, ended the process of the check with exit code "
            f"{ended.exit_code}; with --epochs 0, no handler runs"
        ) from ended


def made_report(
    question: ReportQuestion,
    answer_file: BinaryIO,
    more: "Callable[[App], Iterable[CheckFinding]]" = lambda _: (),
) -> DeploymentReport:
    """Make the report in the child.

    Args:
        more: Returns findings of parts of the application that this module does not know.
    """
    application = import_guarded(locate(question.settings.app), question.import_s, answer_file)
    try:
        deployed, findings = _compared(application, question)
    except (ClassChanged, MigrationFailed, Unencodable) as error:
        deployed, findings = None, [CheckFinding(Level.REFUSED, "schema", str(error))]
    findings += more(application)
    changes = [CheckedChange(each.level, each.kind, each.what) for each in findings]
    return DeploymentReport(deployed, level_of(findings), changes)


def _compared(
    application: "App", question: ReportQuestion
) -> tuple[int | None, list[CheckFinding]]:
    """Return the deployment that the code was compared with, and the findings.

    Raises:
        ClassChanged, MigrationFailed: A class cannot read its stored entities.
        Unencodable: A stored value cannot be in an index.
    """
    settings, drop = question.settings, question.drop
    directory = DataDirectory(settings.data)
    journal = directory.open_journal(application, dropped=drop)
    members = member_changes(deployed_code(settings.data), code_of(locate(settings.app))[0])
    findings = [CheckFinding(Level.WORD, "interface", line) for line in members]
    findings += findings_of_schemas(journal.schema_changes())
    dropped(drop).require(application.removed)
    with (
        closing(journal),
        HistoryReader(settings.data, application, "deploy --check", drop) as past,
        CodeVersions(past, application, settings.app) as versions,
    ):
        directory.check_waiting(application, journal)
        tried = try_migrations(directory, application, journal)
        findings += [CheckFinding(Level.SAFE, "schema", line) for line in tried]
        for index in try_indexes(directory, application, journal):
            findings += [CheckFinding(Level.REFUSED, "schema", line) for line in index.shared]
            if not index.shared:
                findings.append(CheckFinding(Level.SAFE, "schema", index.text))
        following = Epoch(past.last + 1)
        deployed = versions.at(following)
        if past.last != BEFORE_FIRST and not versions.has_deployment(following):
            what = "no deployment is recorded, so only the stored form of the classes is compared"
            findings.append(CheckFinding(Level.WORD, "interface", what))
        findings += compare_unstored(deployed.app, application, journal.schemas())
        findings += compare_interfaces(deployed.app, application)
        findings += check_backlog(settings.data, journal, deployed.app, application)
        findings += check_waits(past, application, settings.limits)
        run = dry_run(past, deployed, application, settings.limits, question.epochs, _show_progress)
        findings += [] if run is None else findings_of(run)
    return deployed.deployment, findings


def _show_progress(epoch: Epoch, _requests: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[Kchecked up to epoch {epoch}\r")
        sys.stderr.flush()


if __name__ == "__main__":
    answer_question(ReportQuestion, made_report)
