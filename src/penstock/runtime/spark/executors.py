"""The executor of each type of control record."""

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from penstock.base.cause import cause_text
from penstock.base.ids import BUCKETS, EntityKey, Epoch, RequestId
from penstock.deployment.archives import Archives
from penstock.deployment.code_in_force import unpacked
from penstock.deployment.prepared_indexes import PREPARE
from penstock.engine.built_indexes import BUILD
from penstock.engine.imported import ImportResult, refusal_of
from penstock.errors import ConfigError, Corrupt, Erased, PenstockError, RequestError, UserError
from penstock.files.durable import storage
from penstock.files.layout import STATE
from penstock.files.roots import journal_root
from penstock.journal.deployments import Deployment, Deployments, deployment_at
from penstock.journal.shapes import Shapes, forget_later_versions
from penstock.journal.staged import StagedRows
from penstock.log.clock import wall_clock_us
from penstock.model.control import (
    Deploy,
    Erase,
    Import,
    Move,
    Prepare,
    Prepared,
    Subscribe,
    encode_control,
    files_of,
)
from penstock.model.index import class_of
from penstock.model.schedule import Schedule
from penstock.model.table_scan import encode_scan
from penstock.orders.order import control_id
from penstock.process.config import Config
from penstock.runtime.spark import messages
from penstock.runtime.spark.control import ControlEffect, Executor, Refused
from penstock.runtime.spark.erasing import Eraser
from penstock.runtime.spark.jobs import Jobs
from penstock.runtime.spark.late_subscribers import LateSubscribers
from penstock.runtime.spark.messages import (
    ApplyEpoch,
    BuildIndexes,
    ImportRows,
    LeaveIndexes,
    LoadCode,
    LoadedClasses,
    PrepareRows,
    TaskResult,
)
from penstock.state.environment import DATA_FILE
from penstock.state.partition_spec import PartitionSpec, name_of

# A worker loads the code and compares its classes with the stored ones before the commit of the epoch. So code that no
# worker can load, or that does not fit, changes nothing. The schema versions and the deployment are written for the next
# epoch, before the commit. If the driver ends in between, they have no epoch, and the same record writes them again.


class DeployExecutor:
    """Puts the code of a deployment in force."""

    def __init__(
        self,
        data: Path,
        jobs: Jobs,
        late: LateSubscribers,
        use_schedules: Callable[[Sequence[Schedule]], None],
    ) -> None:
        self._data = data
        self._staged = StagedRows(data)
        self._jobs = jobs
        self._late = late
        self._use_schedules = use_schedules

    def __call__(self, control: Deploy, epoch: Epoch) -> ControlEffect:
        """Load the code, and record it from the next epoch on."""
        since = Epoch(epoch + 1)
        try:
            spec = unpacked(self._data, control.code).spec
            (result,) = self._jobs.run([LoadCode(spec, epoch, control.dropped)])
            loaded = messages.decode_loaded(result.loaded)
            built = self._build(control, spec, epoch)
            self._record(control, since, loaded)
        except (UserError, Corrupt) as error:
            self._forget(epoch)
            facts = {"archive": control.code.archive, "error": str(error)}
            _log.warning("a deployment is refused", extra=facts)
            raise Refused(error, partial(_forget_staged, self._staged, control)) from error

        def switch() -> None:
            self._late.watch(loaded.late, loaded.scans)
            self._use_schedules(loaded.schedules)
            _forget_staged(self._staged, control)
            self._jobs.use(msgspec.structs.replace(self._jobs.settings, spec=spec, since=since))
            _log.info("a deployment is in force", extra={"archive": control.code.archive})

        return replace(_written(built), result=None, switch=switch)

    def _build(self, control: Deploy, spec: str, epoch: Epoch) -> TaskResult:
        """Let a task write the rows of indexes that the code adds, and remove those that it lacks."""
        deployment = deployment_at(Deployments(journal_root(self._data)).every(), epoch)
        former = {} if deployment is None else deployment.indexes
        # Also if no index changes: the state may have rows of a build whose deployment was refused.
        place = control.dropped, former, self._jobs.partitions
        prepared = _usable(control, deployment)
        (result,) = self._jobs.run([BuildIndexes(spec, epoch, *place, prepared)])
        return result

    def _forget(self, epoch: Epoch) -> None:
        """Remove the files that an earlier attempt at this epoch may have written for the next epoch."""
        deployments = Deployments(journal_root(self._data))
        with storage("refuse a deployment"), deployments.root.alone():
            deployments.keep_prefix(epoch)
            forget_later_versions(deployments.root, epoch)

    def _record(self, control: Deploy, since: Epoch, loaded: LoadedClasses) -> None:
        deployments = Deployments(journal_root(self._data))
        with storage("record a deployment"):
            Shapes(deployments.root, {}).replace(loaded.schemas)
            with deployments.root.alone():
                Archives(self._data).read(control.code.archive)  # maintenance may have removed it
                now_us = wall_clock_us()
                deployments.record(
                    since,
                    now_us,
                    control.code,
                    loaded.tags,
                    live=True,
                    by=control.by,
                    waiting=loaded.waiting,
                    views=loaded.views,
                    effects=loaded.effects,
                    captures=loaded.captures,
                    indexes=loaded.indexes,
                )


def _usable(control: Deploy, deployment: Deployment | None) -> Prepared | None:
    """Return the build that a deployment names, unless another deployment has come since: stored rows may be read otherwise."""
    prepared = control.prepared
    if prepared is None or deployment is None or prepared.deployment != deployment.number:
        return None
    return prepared


def _written(result: TaskResult) -> ControlEffect:
    """Return the effect of the rows of indexes that a task has written; its result says whether further rows are to be removed.

    A later record removes these. It causes the next one, and requests go on between them.
    """
    is_more, changed = msgspec.msgpack.decode(result.loaded, type=tuple[bool, int])
    later = (_removal(),) if is_more else ()
    return ControlEffect(is_more, parts=tuple(result.parts), later=later, changed=changed)


def _removal() -> tuple[RequestId, bytes]:
    return control_id(PREPARE, uuid.uuid4().hex), encode_control(Prepare("", ()))


class BuildStep:
    """Executes the steps of the builds of indexes that are not in force yet."""

    def __init__(self, data: Path, jobs: Jobs) -> None:
        self._data = data
        self._jobs = jobs

    def prepare(self, control: Prepare, epoch: Epoch) -> ControlEffect:
        """Let a task write the rows of the step; see `penstock.runtime.spark.control.Executor`."""
        in_force = Deployments(journal_root(self._data)).indexes_at(epoch)
        if not in_force.keys().isdisjoint(control.places):
            raise Refused(RequestError("another deployment has put the index in force meanwhile"))
        try:
            (result,) = self._jobs.run([PrepareRows(epoch, control, self._jobs.partitions)])
        except (Erased, RequestError, Corrupt) as error:
            raise Refused(error) from error
        return _written(result)


# Tasks bring the stores of the new number to the epoch before the record: they copy the rows from the present stores,
# unless another process has copied them before. The commit of the epoch names the new number. Stores that no commit
# names are a cache, so a crash at any step loses nothing.


_log = logging.getLogger(__name__)


class BucketMove:
    """Executes the control records that move buckets."""

    def __init__(self, data: Path, jobs: Jobs) -> None:
        self._stores = data / STATE
        self._jobs = jobs

    def execute(self, move: Move, epoch: Epoch) -> ControlEffect:
        """Build the stores of the new number; see `penstock.runtime.spark.control.Executor`."""
        partitions = move.partitions
        if not 1 <= partitions <= BUCKETS:
            wrong = f"partitions = {partitions}: must be from 1 to {BUCKETS}"
            raise Refused(ConfigError(wrong))
        if partitions != self._jobs.partitions:
            self._build(partitions, Epoch(epoch - 1))
        return ControlEffect(switch=lambda: self._use(partitions), partitions=partitions)

    def _build(self, partitions: int, epoch: Epoch) -> None:
        """Bring the stores of a number to an epoch.

        Copied stores lack a few epochs only, so the resident task takes them all: a job would take longer to start.
        """
        every = list(range(partitions))
        former = self._jobs.partitions
        names = [name_of(PartitionSpec(each, partitions)) for each in every]
        are_copied = all((self._stores / name / DATA_FILE).exists() for name in names)
        groups = [every] if are_copied else [[each] for each in every]
        try:
            self._jobs.apply([ApplyEpoch(group, epoch, partitions, former) for group in groups])
        except PenstockError:
            raise
        except Exception as error:  # noqa: BLE001 -- a damaged store may have killed the workers
            extra = {"cause": cause_text(error)}
            _log.warning("stores cannot be copied, and are built from the journal", extra=extra)
            self._jobs.apply([ApplyEpoch([each], epoch, partitions) for each in every])

    def _use(self, partitions: int) -> None:
        """Let the next epoch use the stores of a number, and at most as many tasks."""
        self._jobs.partitions = partitions


# Tasks write the staged rows of an import as parts of the epoch. The driver holds names and counts only.


class Importer:
    """Executes imports for the driver of one data directory."""

    def __init__(self, data: Path, jobs: Jobs) -> None:
        self._data = data
        self._staged = StagedRows(data)
        self._jobs = jobs

    def prepare(self, control: Import, epoch: Epoch) -> ControlEffect:
        """Let tasks write the changes; see `penstock.runtime.spark.control.Executor`."""
        tasks = max(1, min(self._jobs.partitions, len(control.pieces)))
        if has_index(self._data, control.entity, epoch):
            tasks = 1  # rows of different files may have one row of an index
        results = self._jobs.run(
            [
                ImportRows(
                    epoch,
                    control.entity,
                    control.tag,
                    list(control.pieces[task::tasks]),
                    control.existing,
                    self._jobs.partitions,
                )
                for task in range(tasks)
            ]
        )
        every = [messages.decode_imported(result.loaded) for result in results]
        forget = partial(self._forget, control)
        for refusal in (each.refusal for each in every if each.refusal):
            raise Refused(RequestError(refusal), forget)
        if refused := sum(each.refused for each in every):
            named = [name for each in every for name in each.named]
            why = refusal_of(control.entity, refused, named, control.existing)
            raise Refused(RequestError(why), forget)
        made = ImportResult(
            control.entity,
            sum(each.created for each in every),
            sum(each.replaced for each in every),
            sum(each.unchanged for each in every),
            int(epoch),
        )
        return ControlEffect(
            msgspec.to_builtins(made),
            switch=forget,
            parts=tuple(part for result in results for part in result.parts),
            later=tuple((piece.record, encode_scan(piece)) for piece in every[0].scans),
            changed=made.created + made.replaced,
        )

    def _forget(self, control: Import) -> None:
        """Remove the files whose rows are in the journal now; maintenance removes the others later."""
        _forget_staged(self._staged, control)


def _forget_staged(staged: StagedRows, control: Import | Deploy) -> None:
    """Remove the files that the journal makes needless; maintenance removes the others later."""
    try:
        staged.remove(files_of(control))
    except OSError as error:
        _log.warning("staged files stay", extra={"cause": str(error)})


class IndexedErasure:
    """Executes erasures of persons whose class may have indexes: the person leaves them in the same epoch.

    A build of an index of the class ends, and further records remove its rows.
    """

    def __init__(self, jobs: Jobs, eraser: Eraser) -> None:
        self._jobs = jobs
        self._eraser = eraser

    def prepare(self, control: Erase, epoch: Epoch) -> ControlEffect:
        """Let a task find the entity, and the rows of indexes."""
        command = LeaveIndexes(epoch, EntityKey(control.subject), self._jobs.partitions)

        def leave() -> Mapping[EntityKey, bytes | None]:
            (result,) = self._jobs.run([command])
            return messages.decode_rows(result.loaded)

        effect = self._eraser.prepare(control, epoch, leave)
        return replace(effect, later=(_removal(),) if BUILD in effect.writes else ())


def has_index(data: Path, stored_name: str, epoch: Epoch) -> bool:
    """Say whether a class may have an index in the code that executes an epoch."""
    deployment = deployment_at(Deployments(journal_root(data)).every(), epoch)
    if deployment is None:  # of a program that belongs to Penstock
        return True
    return stored_name in map(class_of, deployment.indexes)


def executors_of(
    config: Config,
    jobs: Jobs,
    late: LateSubscribers,
    published: Callable[[], Mapping[str, int]],
    eraser: Eraser,
    use_schedules: Callable[[Sequence[Schedule]], None],
) -> dict[type, Executor]:
    """Return the executors for the driver of epochs.

    Args:
        published: Returns the number of atoms of each stream.
        use_schedules: Takes the schedules of the code that runs from now on.
    """
    return {
        Deploy: DeployExecutor(config.data, jobs, late, use_schedules),
        Prepare: BuildStep(config.data, jobs).prepare,
        Move: BucketMove(config.data, jobs).execute,
        Erase: IndexedErasure(jobs, eraser).prepare,
        Subscribe: late.executor(published),
        Import: Importer(config.data, jobs).prepare,
    }
