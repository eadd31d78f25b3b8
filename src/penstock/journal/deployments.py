"""The deployments of a journal: which source ran its epochs, in one small file.

A driver adds a deployment before its first epoch if its source, or the versions of the libraries that the
source imports, differ from those of the last deployment. Epochs of an earlier Penstock have no
deployment. The archives of the sources lie beside the journal; `deployment.archives` writes them.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from penstock.base.ids import Epoch
from penstock.errors import ClassChanged, Corrupt
from penstock.files.durable import storage
from penstock.files.local_root import rooted
from penstock.files.sealed import seal, unseal
from penstock.files.shared_root import SharedRoot
from penstock.model.control import DeployedCode
from penstock.model.shape import Shape
from penstock.model.versions.waiting_types import WaitingTypes, misread_types

NAME: Final = "_deployments.json"
_FIELD: Final = "deployments"


class Deployment(msgspec.Struct, frozen=True):
    """A version of the application's code, and the first epoch that it may have executed.

    Attributes:
        number: 1 for the first deployment, 2 for the next.
        since: The first epoch that it may have executed; its last epoch is before the next deployment.
        time_us: When it was recorded, microseconds since the Unix epoch.
        shapes: The tag of the shape of each stored class, by its name; see `model.shape`.
        live: Whether a record of the log brought its source while the application ran; otherwise the start of a
            driver did.
        by: The principal that has ordered it through a gateway; else empty.
        waiting: The types of waiting values, as far as an earlier deployment has not the same; see `waiting_types`.
        views: The names of the views that the code declares.
        effects: Those of its effects.
        captures: Those of its streams of changes.
        indexes: The definitions of its indexes; see `App.indexes`.
    """

    number: int
    since: Epoch
    time_us: int
    code: DeployedCode
    shapes: dict[str, int]
    live: bool = False
    by: str = ""
    waiting: WaitingTypes = {}
    views: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()
    captures: tuple[str, ...] = ()
    indexes: dict[str, str] = {}

    @property
    def name(self) -> str:
        """Its name in commits: the number, because a rollback has a former archive, and the archive."""
        return f"{self.number}:{self.code.archive}"


class Deployments:
    """The deployments of one journal, in the root of the journal."""

    def __init__(self, place: SharedRoot | Path) -> None:
        self.root = rooted(place)

    def every(self) -> tuple[Deployment, ...]:
        """Return all deployments, the oldest first; empty if no driver has recorded any.

        Raises:
            Corrupt: The file is damaged.
        """
        with storage(f"read {self.root}/{NAME}"):
            try:
                return deployments_in(self.root.get(NAME))
            except FileNotFoundError:
                return ()
            except ValueError as error:
                raise Corrupt(
                    f"{self.root}/{NAME} {error}; put the file back from a backup"
                ) from error

    def record(  # noqa: PLR0913 -- the facts of a deployment
        self,
        since: Epoch,
        time_us: int,
        code: DeployedCode,
        shapes: dict[str, int],
        *,
        live: bool = False,
        by: str = "",
        waiting: Mapping[str, Shape] = MappingProxyType({}),
        views: Iterable[str] = (),
        effects: Iterable[str] = (),
        captures: Iterable[str] = (),
        indexes: Mapping[str, str] = MappingProxyType({}),
    ) -> Deployment | None:
        """Add a deployment durably, unless the last deployment has the same code.

        Deployments that have executed no epoch are replaced. The caller has the lock of the driver.

        Args:
            since: The first epoch that the code may execute.
            time_us: The time, microseconds since the Unix epoch.
            live: Whether a record of the log brings it.
            views: The names of the views that the code declares.
            effects: Those of its effects.
            captures: Those of its streams of changes.
            indexes: The definitions of its indexes.

        Returns:
            The new deployment; None if the last deployment has the same code.

        Raises:
            Corrupt: The file is damaged.
        """
        every = self.every()
        if every and every[-1].code == code:
            return None
        used = [deployment for deployment in every if deployment.since < since]
        if used and used[-1].code == code:
            self._write(used)
            return None
        known = waiting_in(used)
        if refusals := misread_types(known, waiting):
            raise ClassChanged(refusal_of(refusals))
        fresh = {what: shape for what, shape in waiting.items() if known.get(what) != shape}
        number = len(used) + 1
        declared = tuple(views), tuple(effects), tuple(captures), dict(indexes)
        added = Deployment(number, since, time_us, code, shapes, live, by, fresh, *declared)
        self._write([*used, added])
        return added

    def views(self) -> tuple[str, ...]:
        """Return the views of the newest deployment; none before the first.

        Raises:
            Corrupt: The file is damaged.
        """
        every = self.every()
        return every[-1].views if every else ()

    def effects(self) -> tuple[str, ...]:
        """Return the effects of all deployments, the newest first; raises as `views`.

        Effects that the newest one has removed may still wait. The process that calls effects ends them as failed.
        """
        names = (name for each in reversed(self.every()) for name in each.effects)
        return tuple(dict.fromkeys(names))

    def captures(self) -> tuple[str, ...]:
        """Return the streams of changes of the newest deployment; none before the first; raises as `views`."""
        every = self.every()
        return every[-1].captures if every else ()

    def indexes_at(self, epoch: Epoch) -> dict[str, str]:
        """Return the definitions of the indexes of the code that executes an epoch; raises as `views`."""
        deployment = deployment_at(self.every(), epoch)
        return {} if deployment is None else deployment.indexes

    def name_at(self, epoch: Epoch) -> str:
        """Return the name of the deployment that executes an epoch; empty if there is none; raises as `views`."""
        deployment = deployment_at(self.every(), epoch)
        return "" if deployment is None else deployment.name

    def check(self, since: Epoch, waiting: Mapping[str, Shape]) -> None:
        """Check that waiting values have the same meaning in code that would be deployed.

        Args:
            since: The first epoch that the code may execute.

        Raises:
            Corrupt: The file is damaged.
        """
        used = [each for each in self.every() if each.since < since or each.live]
        if refusals := misread_types(waiting_in(used), waiting):
            raise ClassChanged(refusal_of(refusals))

    def keep_prefix(self, upto: Epoch) -> None:
        """Remove the deployments after an epoch.

        Raises:
            Corrupt: The file is damaged.
        """
        self._keep(deployment for deployment in self.every() if deployment.since <= upto)

    def keep_committed(self, newest: Epoch) -> None:
        """Remove the deployments that a journal which ends with an epoch does not have.

        The epoch may be that of a live deployment, which executes the epochs from the next one on.
        """
        every = self.every()
        self._keep(each for each in every if each.since <= newest + (1 if each.live else 0))

    def _keep(self, deployments: Iterable[Deployment]) -> None:
        kept = list(deployments)
        if len(kept) < len(self.every()):
            self._write(kept)

    def _write(self, deployments: Sequence[Deployment]) -> None:
        with storage(f"write {self.root}/{NAME}"):
            self.root.replace(NAME, seal(_FIELD, deployments))
            self.root.count_change()


def deployments_in(data: bytes) -> tuple[Deployment, ...]:
    """Return the deployments in the bytes of a file.

    Raises:
        ValueError: They are damaged; the message says how.
    """
    return unseal(_FIELD, data, tuple[Deployment, ...])


def waiting_in(deployments: Iterable[Deployment]) -> WaitingTypes:
    """Return the newest known types of waiting values, also of methods and streams that are gone since."""
    return {what: shape for each in deployments for what, shape in each.waiting.items()}


def refusal_of(refusals: Iterable[str]) -> str:
    """Return the message about code that would read waiting values with another meaning."""
    lines = "".join(f"\n  {refusal}" for refusal in refusals)
    return f"the application would read waiting values with another meaning:{lines}\nNothing was written."


def deployment_at(deployments: Sequence[Deployment], epoch: Epoch) -> Deployment | None:
    """Return the deployment that executed an epoch; None if no driver recorded one by then."""
    return next((each for each in reversed(deployments) if each.since <= epoch), None)


def is_same_source(code: DeployedCode | None, other: DeployedCode) -> bool:
    """Say whether two codes are the same application of the same source, whatever libraries they ran with."""
    was = None if code is None else (code.archive, code.module, code.name)
    return was == (other.archive, other.module, other.name)


def replaces_source(
    in_force: Deployment, deployments: Sequence[Deployment], source: DeployedCode | None
) -> bool:
    """Say whether a process that starts with a source continues the deployment in force instead.

    Code that was deployed into the running application stays in force over a restart. So a source that was deployed
    earlier and replaced since, for example by a rollback, does not come back. A source that was never deployed is new.

    Args:
        source: The code of the source; None for modules that are never deployed.
    """
    return in_force.live and any(is_same_source(source, each.code) for each in deployments)


def needed_archives(deployments: Sequence[Deployment], first: Epoch) -> set[str]:
    """Return the archives of the deployments that executed epochs from `first` on, and of the last one."""
    ends = [*(deployment.since for deployment in deployments[1:]), None]
    return {
        deployment.code.archive
        for deployment, end in zip(deployments, ends, strict=False)  # without any, one end is left
        if end is None or end > first
    }


def version_changes(before: DeployedCode, after: DeployedCode) -> list[str]:
    """Return the changes of versions between two codes as text: `numpy 2.1 → 2.2`."""
    was = {"Python": before.python, **before.libraries}
    now = {"Python": after.python, **after.libraries}
    return [
        f"{name} {was.get(name, 'absent')} → {now.get(name, 'absent')}"
        for name in sorted(was.keys() | now.keys())
        if was.get(name) != now.get(name)
    ]
