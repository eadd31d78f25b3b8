"""The deployment of code into a running application: a control record, which takes effect at its place in the log.

`DeployOrder`, `Rollback` and `Removal` are orders. The code is stored and checked before the record is appended, so code that does not fit changes nothing. The driver checks
it again at its place. The record may wait for a driver; it is executed when a driver has processed the records before it.
"""

import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from penstock.base.deployment_answers import DeploymentResult
from penstock.base.ids import Epoch, Lsn
from penstock.deployment.archives import Archives
from penstock.deployment.code_check import check_code
from penstock.deployment.code_in_force import deployment_in_force
from penstock.deployment.deployed_set import member_changes, with_applications, without_application
from penstock.deployment.dropped_classes import NOTHING_DROPPED, Drop, classes_in_force, dropped
from penstock.deployment.index_build import BUILD_S, PREPARED_MIN, prepare_indexes
from penstock.deployment.loading import locate
from penstock.deployment.source import code_of
from penstock.errors import ConfigError
from penstock.files.durable import storage
from penstock.journal.api import Journal
from penstock.journal.deployments import Deployment, Deployments, deployment_at
from penstock.log.api import Log
from penstock.model.control import Deploy, DeployedCode, Prepared
from penstock.orders.order import (
    Place,
    Way,
    append_control,
    settled,
    waiting_controls,
)
from penstock.process import presence
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.driver_claim import driver_runs

_LOOK_S: Final = 0.02
_WORK_S: Final = 180.0 + BUILD_S
"""A gateway reads and checks the code, and builds large indexes, before it waits for the driver."""

PrepareIndexes = Callable[[DeployedCode, tuple[str, ...]], Prepared | None]
"""Builds the large indexes of code, which may lack some stored classes, while epochs go on."""

_WAY: Final = Way(
    noun="a deployment",
    path="/deployments",
    name="deployments.order",
    result=DeploymentResult,
    text="The code is in force, or the report.",
    example='{"number": 2} or {"remove": "stock"}',
    work_s=_WORK_S,
    waits=lambda made: made.changed and made.number is None,
    conflicts=True,
)


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
    """Return the code of the newest deployment, which may still wait in the log; None without a deployment."""
    directory = DataDirectory(data)
    if (name := directory.app_name) is None:
        return None
    with closing(directory.open_journal_of(name)) as journal, closing(directory.open_log()) as log:
        return newest_code(data, journal, log)


def store_code(data: Path, spec: str) -> DeployedCode:
    """Store the archive of an application's present source, and return the code.

    The archive has the other deployed applications as they are deployed; see `with_applications`.

    Raises:
        ConfigError: The application does not exist, or a source file cannot be read.
    """
    return _stored(data, with_applications(data, deployed_code(data), spec))


def store_without(data: Path, name: str) -> DeployedCode:
    """Store the archive of the deployed set without an application, and return the code.

    The check of this code refuses it if another application uses the removed one.
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
    prepare: PrepareIndexes | None = None,
) -> AppendedDeployment | None:
    """Check code whose archive is stored, and append its deployment durably.

    Args:
        replaces: The newest code when this code was made of it; None to replace any code.
        drop: The stored classes that the code may lack.
        by: The principal that orders it; empty for a command on the machine.
        prepare: Builds large indexes first; None: the epoch of the deployment builds all rows.

    Returns:
        The deployment; None if the newest deployment, which may still wait in the log, has the same code.

    Raises:
        ConfigError: The journal is missing, the code cannot be imported, another deployment has come before it, or a class
            to drop is not stored or still in the code; nothing is appended.
    """
    directory = DataDirectory(config.data)
    if (name := directory.app_name) is None:
        raise ConfigError(f"there is no journal in {config.data}; start the application first")
    names_classes = drop.must_be and bool(drop.names)  # a mistyped name is told in any case
    if not names_classes and deployed_code(config.data) == code:
        return None
    checked = check_code(config.data, code, drop.names)
    drop.require(checked.removed)
    prepared = None
    if prepare is not None and checked.indexed >= PREPARED_MIN:
        prepared = prepare(code, drop.names)
    with (
        closing(directory.open_journal_of(name)) as journal,
        closing(directory.open_log(config)) as log,
        directory.journal_root.alone(),  # maintenance removes no archive meanwhile
    ):
        newest = newest_code(config.data, journal, log)
        if newest == code:
            return None
        if replaces not in (None, newest):
            raise ConfigError("another deployment has been made meanwhile; deploy again")
        Archives(config.data).read(code.archive)
        lsn = append_control(
            log, "deploy", uuid.uuid4().hex, Deploy(code, drop.names, by, prepared)
        )
    changes = member_changes(newest, code) + checked.changes
    return AppendedDeployment(lsn, code, changes, checked.unfit)


def wait_for_deployment(
    settings: Config, appended: AppendedDeployment, timeout_s: float
) -> Deployment:
    """Wait until a deployment is in force."""
    reply = settled(settings, appended.lsn, timeout_s, "the deployment")
    reply.value()
    every = Deployments(DataDirectory(settings.data).journal_root).every()
    deployment = deployment_at(every, Epoch(reply.epoch + 1))
    assert deployment is not None, "the driver records a deployment before it answers"
    return deployment


def put_in_force(
    place: Place,
    code: DeployedCode,
    timeout_s: float,
    replaces: DeployedCode | None = None,
    drop: Drop = NOTHING_DROPPED,
) -> DeploymentResult:
    """Deploy code whose archive is stored, and wait until it is in force.

    Args:
        timeout_s: How long to wait for the driver, and then for the gateways.
        replaces: The newest code when this code was made of it; None to replace any code.
        drop: The stored classes that the code may lack.

    Returns:
        The result; it has no number if no driver runs yet.
    """
    settings = place.settings
    prepare: PrepareIndexes | None = None
    if driver_runs(settings.data):  # else no request waits for the epoch of the deployment
        prepare = partial(prepare_indexes, place, timeout_s)
    appended = append_deployment(settings, code, replaces, drop, place.by, prepare)
    if appended is None:
        return DeploymentResult(changed=False, archive=code.archive)
    result = DeploymentResult(
        changed=True,
        archive=code.archive,
        position=appended.lsn,
        changes=appended.changes,
        unfit=appended.unfit,
    )
    if not driver_runs(settings.data):
        return result
    deployment = wait_for_deployment(settings, appended, timeout_s)
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
    deployment = deployment_in_force(data, journal)
    return None if deployment is None else deployment.code


def waiting_code(journal: Journal, log: Log) -> list[DeployedCode]:
    """Return the code of the deployments in the log that no epoch has executed yet, in order."""
    return [each.code for each in waiting_controls(journal, log) if isinstance(each, Deploy)]


class DeployOrder(msgspec.Struct, frozen=True):
    """An order to deploy the present source of an application; a gateway takes its archive. See `order.Order`.

    Attributes:
        spec: The application, as for `locate`.
        drop: The stored classes that the code lacks.
    """

    spec: str
    drop: list[str] = []

    way: ClassVar[Way] = _WAY

    def carry_out(self, place: Place, timeout_s: float) -> DeploymentResult:
        """Store and check the code, append its deployment, and wait until it is in force."""
        place.directory()
        data = place.settings.data
        replaced = deployed_code(data)
        code = store_code(data, self.spec)
        return put_in_force(place, code, timeout_s, replaced, dropped(self.drop))


class Rollback(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An order to deploy the code of a former deployment again; see `order.Order`.

    Attributes:
        number: The number of the deployment; None: the number before the present one.
        drop: The stored classes that its code lacks.
    """

    number: int | None = None
    drop: list[str] = []

    way: ClassVar[Way] = _WAY

    def carry_out(self, place: Place, timeout_s: float) -> DeploymentResult:
        """Append the deployment of the former code, and wait until it is in force."""
        directory, _ = place.directory()
        code = former_code(Deployments(directory.journal_root).every(), self.number)
        return put_in_force(place, code, timeout_s, drop=dropped(self.drop))


class Removal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An order to deploy the present set of applications without one of them; see `order.Order`.

    Attributes:
        remove: The module of the application, or module and name: `stock` or `stock:app`.
    """

    remove: str

    way: ClassVar[Way] = _WAY

    def carry_out(self, place: Place, timeout_s: float) -> DeploymentResult:
        """Append the deployment of the others, and wait until it is in force."""
        data = place.settings.data
        replaced = deployed_code(data)
        code = store_without(data, self.remove)
        return put_in_force(place, code, timeout_s, replaced, classes_in_force(data))


def former_code(every: Sequence[Deployment], number: int | None) -> DeployedCode:
    """Return the code of a deployment, by default of the newest one with other code than the last.

    Args:
        number: The number of the deployment; None: the newest deployment with other code than the last.
    """
    last = every[-1].code if every else None
    for deployment in reversed(every):
        if deployment.number == number or (number is None and deployment.code != last):
            return deployment.code
    known = ", ".join(str(deployment.number) for deployment in every) or "none"
    wanted = "deployment of other code" if number is None else f"deployment {number}"
    raise ConfigError(f"there is no {wanted} to go back to; the deployments are: {known}")
