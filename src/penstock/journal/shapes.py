"""The schema versions of a journal: the stored forms of each class that it has rows of, in one small file.

The file is created with the journal. A class is added before its first rows are written. Its first version stays, and a
driver adds a version when it deploys a changed class, so a journal has rows of known shapes only, also if two processes
write. Code whose classes cannot read the stored rows is refused, and the error names each reason and its remedy.
`model.shape` defines shapes, `model.versions.schema_change` compares them.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from penstock.base.ids import Epoch
from penstock.errors import ClassChanged, Corrupt
from penstock.files.local_root import rooted
from penstock.files.sealed import seal, unseal
from penstock.files.shared_root import SharedRoot
from penstock.journal.deployments import Deployments, deployment_at
from penstock.model.entity_type import EntityType
from penstock.model.schema_version import Versions, first_version
from penstock.model.shape import Shape, attribute_names
from penstock.model.versions.schema_change import SchemaChange, compare_classes, first_version_of

logger = logging.getLogger(__name__)

NAME: Final = "_shapes.json"
_FIELD: Final = "shapes"


class Shapes:
    """The schema versions of one journal, and the classes that a process declares.

    Args:
        place: The root, or its folder.
        dropped: The stored classes that it may lack.
    """

    def __init__(
        self,
        place: SharedRoot | Path,
        declared: Mapping[str, EntityType],
        dropped: Collection[str] = (),
    ) -> None:
        self._root = rooted(place)
        self._declared = declared
        self._dropped = dropped
        self._recorded: frozenset[str] = frozenset()  # classes whose declared shape is stored

    def create(self) -> None:
        """Create the file without classes, unless it exists."""
        if not self._root.create(NAME, seal(_FIELD, {})):
            self._root.settle("")

    def check(self, since: int) -> list[SchemaChange]:
        """Compare the declared classes with the stored ones, and let them read rows of all versions.

        Nothing is written. A class with a compatible change reads the stored rows as its new version.

        Returns:
            The compatible changes that no driver has deployed yet.

        Raises:
            Corrupt: The file is missing or damaged.
        """
        stored = self.versions()
        return self._compare(stored, since, self.begun(stored, since))[0]

    def begun(self, stored: Mapping[str, Versions], since: int) -> int:
        """Return the epoch before which a version is in force.

        A version that a record of the log has deployed is in force before it has rows.
        """
        beginnings = {version.since for versions in stored.values() for version in versions}
        if since not in beginnings:
            return since
        deployment = deployment_at(Deployments(self._root).every(), Epoch(since))
        is_live = deployment is not None and deployment.live and deployment.since == since
        return since + 1 if is_live else since

    def _compare(
        self, stored: Mapping[str, Versions], since: int, begun: int
    ) -> tuple[list[SchemaChange], dict[str, Versions]]:
        """Return the changes, and the versions of each class after them; see `check`.

        Args:
            since: The first epoch that may have rows of new versions.
            begun: The epoch before which the stored versions that stay begin.
        """
        followed = {
            name: _with_rows(versions, self._declared.get(name), begun)
            for name, versions in stored.items()
        }
        changes, after, refusals = compare_classes(followed, self._declared, since, self._dropped)
        if refusals:
            raise self._refused(refusals)
        self._recorded = frozenset(stored) - {change.name for change in changes}
        return changes, after

    def deploy(self, since: int) -> list[SchemaChange]:
        """Store the new versions of changed classes durably, before a driver writes their first rows.

        A version without rows is replaced if the class has changed again, for example back to its former attributes.

        Returns:
            The changes that are in force now, and were not before.

        Raises:
            ClassChanged, Corrupt: See `check`; nothing was written.
        """
        changes: list[SchemaChange] = []

        def edit(data: bytes | None) -> bytes | None:
            stored = self._decoded(data)
            changes[:], after = self._compare(stored, since, self.begun(stored, since))
            if after == stored:
                return None
            self._recorded = frozenset(after)
            return seal(_FIELD, after)

        self._root.change(NAME, edit)
        for change in changes:
            facts = {
                "entity": change.name,
                "version": change.version.number,
                "changes": change.changes,
            }
            logger.info("a class has a new schema version", extra=facts)
        return changes

    def planned(self, since: int) -> dict[str, Versions]:
        """Return the versions of each class if the declared classes were deployed; nothing is written.

        Args:
            since: The first epoch that may have rows of new versions.

        Raises:
            ClassChanged, Corrupt: See `check`.
        """
        return self._compare(self.versions(), since, since)[1]

    def replace(self, versions: Mapping[str, Versions]) -> None:
        """Store versions from `planned` durably; no epoch runs meanwhile."""

        def edit(data: bytes | None) -> bytes | None:
            return None if self._decoded(data) == versions else seal(_FIELD, versions)

        self._root.change(NAME, edit)

    def unrecorded(self, names: Iterable[str]) -> list[str]:
        """Return the classes among names whose declared shape is not known to be stored."""
        return [name for name in names if name not in self._recorded]

    def record(self, fresh: Sequence[str], since: int) -> None:
        """Store the first versions of classes durably, before their first rows are written.

        Raises:
            Corrupt: The file is missing or damaged.
        """
        recorded: dict[str, Versions] = {}

        def edit(data: bytes | None) -> bytes | None:
            nonlocal recorded
            stored = self._decoded(data)
            every, _ = self._compare(stored, since, self.begun(stored, since))
            if changes := [change for change in every if change.name in fresh]:
                lines = [
                    f"{change.name}: it is not the newest stored version" for change in changes
                ]
                raise self._refused(lines)
            declared = {name: self._declared[name] for name in fresh if name not in stored}
            added = {
                name: (first_version_of(entity_type, since),)
                for name, entity_type in declared.items()
            }
            recorded = {**stored, **added}
            return seal(_FIELD, recorded) if added else None

        self._root.change(NAME, edit)
        self._recorded = frozenset(recorded)

    def versions(self) -> dict[str, Versions]:
        """Return the versions of each class that the journal has rows of.

        Raises:
            Corrupt: The file is missing or damaged.
        """
        try:
            return self._decoded(self._root.get(NAME))
        except FileNotFoundError:
            return self._decoded(None)

    def _decoded(self, data: bytes | None) -> dict[str, Versions]:
        """Return the versions in the bytes of the file; raises as `versions`."""
        try:
            if data is not None:
                return versions_in(data)
            how = "is missing"
        except ValueError as error:
            how = str(error)
        raise Corrupt(f"{self._root}/{NAME} {how}; put the file back from a backup")

    def _refused(self, refusals: Iterable[str]) -> ClassChanged:
        lines = "".join(f"\n  {refusal}" for refusal in refusals)
        data = str(self._root).rpartition("/")[0]
        return ClassChanged(
            f"the application's classes cannot read the entities that {data} holds:{lines}\n"
            "Nothing was written. Change the code as said, go back to the code that wrote them, or let this code begin "
            "in a directory of its own: --data DIR"
        )


def _with_rows(versions: Versions, declared: EntityType | None, since: int) -> Versions:
    """Return the versions that a class follows: without a newest one that is not in force and is not the class.

    A driver that ended before its first epoch has left such a version.

    Args:
        declared: The class; None if the class does not exist.
        since: The epoch before which a version is in force.
    """
    begun = tuple(version for version in versions if version.since < since)
    newest = versions[-1]
    is_newest = newest.removed == (declared is None) and (
        declared is None or newest.shape.tag == declared.shape.tag
    )
    return versions if is_newest or not begun else begun


def versions_in(data: bytes) -> dict[str, Versions]:
    """Return the schema versions in the bytes of a file.

    Raises:
        ValueError: They are damaged; the message says how.
    """
    stored = unseal(_FIELD, data, dict[str, Versions | Shape])
    return {
        name: (first_version(versions, attribute_names(versions), 0),)
        if isinstance(versions, Shape)  # of a time when a class had one version
        else versions
        for name, versions in stored.items()
    }


def forget_later_versions(place: SharedRoot | Path, upto: int) -> None:
    """Remove the schema versions that begin after an epoch from a copy of a journal, which ends with this epoch.

    The versions of a deployment that this epoch has put in force stay.

    Raises:
        Corrupt: The file is missing or damaged.
    """
    shapes = Shapes(place, {})
    stored = shapes.versions()
    begun_before = shapes.begun(stored, upto + 1)
    begun = {
        name: tuple(version for version in versions if version.since < begun_before)
        for name, versions in stored.items()
    }
    kept = {name: versions for name, versions in begun.items() if versions}
    if kept != stored:
        rooted(place).replace(NAME, seal(_FIELD, kept))
