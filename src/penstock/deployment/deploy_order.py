"""The deployment of code into a running application: a control record, which takes effect at its place in the log.

The code is stored and checked before the record is appended, so code that does not fit changes nothing. The driver checks
it again at its place. The record may wait for a driver; it is executed when a driver has processed the records before it.
"""

import time
import uuid
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.deployment_answers import DeploymentResult
from penstock.base.ids import ONLY_PARTITION, Epoch, Lsn
from penstock.deployment.archives import Archives
from penstock.deployment.code_check import check_code
from penstock.deployment.code_in_force import deployment_in_force
from penstock.deployment.deployed_set import member_changes, with_applications, without_application
from penstock.deployment.dropped_classes import NOTHING_DROPPED, Drop
from penstock.deployment.loading import locate
from penstock.deployment.source import code_of
from penstock.errors import ConfigError, TimedOut
from penstock.files.durable import storage
from penstock.files.lock import locked_directory
from penstock.journal.api import Journal
from penstock.journal.deployments import Deployment, Deployments, deployment_at
from penstock.journal.tail import JournalTail
from penstock.log.api import Log
from penstock.model.control import Deploy, DeployedCode, decode_control, is_control
from penstock.orders.control_append import append_control
from penstock.process import presence
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory

_LOOK_S: Final = 0.02


class AppendedDeployment(msgspec.Struct, frozen=True):
    """A deployment whose record is in the log.

    Attributes:
        changes: The changes of stored classes, a sentence for each.
        unfit: The waiting requests that will fail, a sentence for each.
    """

    lsn: Lsn
    code: DeployedCode
    changes: list[str]
    unfit: list[str] = []


def deployed_code(data: Path) -> DeployedCode | None:
    """Return the code of the newest deployment, which may still wait in the log; None without a deployment.

    Raises:
        Corrupt: A file of the data directory is damaged.
        OperationalError: A file cannot be read.
    """
    directory = DataDirectory(data)
    if (name := directory.app_name) is None:
        return None
    with closing(directory.open_journal_of(name)) as journal, closing(directory.open_log()) as log:
        return newest_code(data, journal, log)


def store_code(data: Path, spec: str) -> DeployedCode:
    """Store the archive of an application's present source, and return the code.

    The archive has the other deployed applications as they are deployed; see `with_applications`.

    Raises:
        ConfigError: There is no such application, or a source file cannot be read.
        Corrupt: A file of the data directory is damaged.
        OperationalError: The disk is full or fails, or source files change all the time.
    """
    return _stored(data, with_applications(data, deployed_code(data), spec))


def store_without(data: Path, name: str) -> DeployedCode:
    """Store the archive of the deployed set without an application, and return the code.

    The check of this code refuses it if another application uses the removed one.

    Raises:
        ConfigError: No such application is deployed, or it is the only one.
        Corrupt: A file of the data directory is damaged.
        OperationalError: The disk is full or fails.
    """
    return _stored(data, without_application(data, deployed_code(data), name))


def _stored(data: Path, spec: str) -> DeployedCode:
    code, archive = code_of(locate(spec), warns=True)
    with storage(f"store the source of {code.module}"):
        Archives(data).put(archive)
    return code


def append_deployment(
    config: Config,
    code: DeployedCode,
    replaces: DeployedCode | None = None,
    drop: Drop = NOTHING_DROPPED,
    by: str = "",
) -> AppendedDeployment | None:
    """Check code whose archive is stored, and append its deployment durably.

    Args:
        replaces: The newest code when this code was made of it; None to replace any code.
        drop: The stored classes that the code may lack.
        by: The principal that orders it; empty for a command on the machine.

    Returns:
        The deployment; None if the newest deployment, which may still wait in the log, has the same code.

    Raises:
        ConfigError: There is no journal, the code cannot be imported, another deployment has come before it, or a class
            to drop is not stored or still in the code; nothing is appended.
        ClassChanged: A class cannot read its stored entities; nothing is appended.
        Corrupt: The archive is missing or was changed; nothing is appended.
        LogUnavailable: The disk is full or fails.
    """
    directory = DataDirectory(config.data)
    if (name := directory.app_name) is None:
        raise ConfigError(f"there is no journal in {config.data}; start the application first")
    names_classes = drop.must_be and bool(drop.names)  # a mistyped name is told in any case
    if not names_classes and deployed_code(config.data) == code:
        return None
    checked = check_code(config.data, code, drop.names)
    drop.require(checked.removed)
    with (
        closing(directory.open_journal_of(name)) as journal,
        closing(directory.open_log(config)) as log,
        locked_directory(directory.journal_path),  # maintenance removes no archive meanwhile
    ):
        newest = newest_code(config.data, journal, log)
        if newest == code:
            return None
        if replaces not in (None, newest):
            raise ConfigError("another deployment has been made meanwhile; deploy again")
        Archives(config.data).read(code.archive)
        lsn = append_control(log, "deploy", uuid.uuid4().hex, Deploy(code, drop.names, by))
    changes = member_changes(newest, code) + checked.changes
    return AppendedDeployment(lsn, code, changes, checked.unfit)


def wait_for_deployment(
    data: Path, tail: JournalTail, appended: AppendedDeployment, timeout_ms: int
) -> Deployment:
    """Wait until a deployment is in force.

    Args:
        timeout_ms: How long to wait.

    Raises:
        TimedOut: No driver has executed the record yet; it stays in the log.
        PenstockError: The driver has refused the record: code or classes do not fit any more.
    """
    reply = tail.wait((ONLY_PARTITION, appended.lsn), timeout_ms)
    reply.value()
    every = Deployments(DataDirectory(data).journal_path).every()
    deployment = deployment_at(every, Epoch(reply.epoch + 1))
    assert deployment is not None, "the driver records a deployment before it answers"
    return deployment


def put_in_force(
    settings: Config,
    code: DeployedCode,
    timeout_s: float,
    replaces: DeployedCode | None = None,
    drop: Drop = NOTHING_DROPPED,
    by: str = "",
) -> DeploymentResult:
    """Deploy code whose archive is stored, and wait until it is in force.

    Args:
        settings: The settings, which name the data directory.
        timeout_s: How long to wait for the driver, and then for the gateways.
        replaces: The newest code when this code was made of it; None to replace any code.
        drop: The stored classes that the code may lack.
        by: The principal that orders it; empty for a command on the machine.

    Returns:
        The result; it has no number if no driver runs yet.

    Raises:
        TimedOut: No driver has executed the record in time; it stays in the log.
        PenstockError: The code or its classes do not fit; nothing has changed.
    """
    appended = append_deployment(settings, code, replaces=replaces, drop=drop, by=by)
    if appended is None:
        return DeploymentResult(changed=False, archive=code.archive)
    result = DeploymentResult(
        changed=True,
        archive=code.archive,
        position=appended.lsn,
        changes=appended.changes,
        unfit=appended.unfit,
    )
    if not any(presence.find(settings.data, role) for role in presence.SINGLE):
        return result
    directory = DataDirectory(settings.data)
    with (
        closing(directory.open_journal_of(directory.app_name or "")) as journal,
        closing(JournalTail(journal)) as tail,
    ):
        try:
            deployment = wait_for_deployment(settings.data, tail, appended, int(timeout_s * 1_000))
        except TimedOut:
            raise TimedOut(
                f"the driver has not executed the deployment within {timeout_s:g} s; it is durable at "
                f"position {appended.lsn} of the log, and penstock apps shows when it is in force"
            ) from None
    behind = _gateways_behind(settings, deployment.number, timeout_s)
    return msgspec.structs.replace(
        result, number=deployment.number, since=deployment.since, behind=behind
    )


def _gateways_behind(settings: Config, number: int, timeout_s: float) -> list[int]:
    """Wait until all gateways serve a deployment; return the ids of those that do not in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        behind = [
            process.pid
            for process in presence.find(settings.data, "gateway")
            if int(process.details.get("deployment", number)) < number
        ]
        if not behind or time.monotonic() > deadline:
            return behind
        time.sleep(_LOOK_S)


def newest_code(data: Path, journal: Journal, log: Log) -> DeployedCode | None:
    """Return the code of the newest deployment in the log, or else of the deployment in force."""
    if waiting := waiting_code(journal, log):
        return waiting[-1]
    last = journal.last()
    deployment = deployment_in_force(data, None if last is None else last.epoch)
    return None if deployment is None else deployment.code


def waiting_code(journal: Journal, log: Log) -> list[DeployedCode]:
    """Return the code of the deployments in the log that no epoch has executed yet, in order."""
    last = journal.last()
    start = Lsn(0) if last is None else last.positions.get(ONLY_PARTITION, Lsn(0))
    waiting = []
    for lsn in log.controls(start, log.end()):
        (record,) = log.read(lsn, Lsn(lsn + 1))
        control = decode_control(record.body) if is_control(record.body) else None
        if isinstance(control, Deploy):
            waiting.append(control.code)
    return waiting


def former_code(every: Sequence[Deployment], number: int | None) -> DeployedCode:
    """Return the code of a deployment, by default of the newest one with other code than the last.

    Args:
        number: The number of the deployment; None: the newest deployment with other code than the last.

    Raises:
        ConfigError: There is no such deployment.
    """
    last = every[-1].code if every else None
    for deployment in reversed(every):
        if deployment.number == number or (number is None and deployment.code != last):
            return deployment.code
    known = ", ".join(str(deployment.number) for deployment in every) or "none"
    wanted = "deployment of other code" if number is None else f"deployment {number}"
    raise ConfigError(f"there is no {wanted} to go back to; the deployments are: {known}")
