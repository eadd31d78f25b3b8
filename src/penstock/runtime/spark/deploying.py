"""The executor of deployments: code that takes effect while the application runs.

A worker loads the code and compares its classes with the stored ones before the commit of the epoch. So code that no
worker can load, or that does not fit, changes nothing. The schema versions and the deployment are written for the next
epoch, before the commit. If the driver ends in between, they have no epoch, and the same record writes them again.
"""

import logging
import time
from pathlib import Path

import msgspec

from penstock.base.ids import Epoch
from penstock.deployment.archives import Archives
from penstock.deployment.code_in_force import unpacked
from penstock.errors import Corrupt, UserError
from penstock.files.durable import storage
from penstock.files.layout import JOURNAL
from penstock.files.lock import locked_directory
from penstock.journal.deployments import Deployments
from penstock.journal.shapes import Shapes, forget_later_versions
from penstock.model.control import Deploy
from penstock.runtime.spark import messages
from penstock.runtime.spark.control import ControlEffect, Refused
from penstock.runtime.spark.jobs import Jobs
from penstock.runtime.spark.late_subscribers import LateSubscribers
from penstock.runtime.spark.messages import LoadCode, LoadedCode

_log = logging.getLogger(__name__)


class DeployExecutor:
    """Puts the code of a deployment in force."""

    def __init__(self, data: Path, jobs: Jobs, late: LateSubscribers) -> None:
        self._data = data
        self._jobs = jobs
        self._late = late

    def __call__(self, control: Deploy, epoch: Epoch) -> ControlEffect:
        """Load the code, and record it from the epoch after this one on.

        Raises:
            Refused: The archive is missing or was changed, the code cannot be loaded, or a class does not fit.
            PenstockError: The environment fails.
        """
        since = Epoch(epoch + 1)
        try:
            spec = unpacked(self._data, control.code).spec
            (result,) = self._jobs.run([LoadCode(spec, epoch, control.dropped)])
            loaded = messages.decode_loaded(result.loaded)
            self._record(control, since, loaded)
        except (UserError, Corrupt) as error:
            self._forget(epoch)
            facts = {"archive": control.code.archive, "error": str(error)}
            _log.warning("a deployment is refused", extra=facts)
            raise Refused(error) from error

        def switch() -> None:
            self._late.watch(loaded.late)
            self._jobs.use(msgspec.structs.replace(self._jobs.settings, spec=spec, since=since))
            _log.info("a deployment is in force", extra={"archive": control.code.archive})

        return ControlEffect(switch=switch)

    def _forget(self, epoch: Epoch) -> None:
        """Remove what an earlier attempt at this epoch may have written for the next one."""
        deployments = Deployments(self._data / JOURNAL)
        with storage("refuse a deployment"), locked_directory(deployments.folder):
            deployments.keep_prefix(epoch)
            forget_later_versions(deployments.folder, epoch)

    def _record(self, control: Deploy, since: Epoch, loaded: LoadedCode) -> None:
        deployments = Deployments(self._data / JOURNAL)
        with storage("record a deployment"):
            Shapes(deployments.folder, {}).replace(loaded.schemas)
            with locked_directory(deployments.folder):
                Archives(self._data).read(control.code.archive)  # maintenance may have removed it
                now_us = time.time_ns() // 1_000
                deployments.record(
                    since,
                    now_us,
                    control.code,
                    loaded.tags,
                    live=True,
                    by=control.by,
                    waiting=loaded.waiting,
                )
