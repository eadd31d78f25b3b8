"""Removed classes: classes that an application does not declare any more, and whose rows are stored.

Their rows stay in journal, stores and snapshots. Queries and history show them. So a removed class is built again from
its stored shape (`stored_class`), without methods: no request reaches its entities, and no epoch changes them.
"""

from collections.abc import Mapping

from penstock.model.application import App
from penstock.model.entity_type import EntityType
from penstock.model.schema_version import Versions, unchanged_version
from penstock.model.versions.schema_change import first_version_of
from penstock.model.versions.stored_class import learn, stored_type


def learn_removed(app: App, schemas: Mapping[str, Versions]) -> None:
    """Let an application read the rows of the classes that it does not declare.

    Args:
        schemas: The versions of each class that the journal has rows of.
    """
    app.learn_removed(
        {
            name: _removed_type(name, versions)
            for name, versions in schemas.items()
            if name not in app.stored
        }
    )


def removed_versions(removed: EntityType) -> Versions:
    """Return the versions of a removed class in another journal, which has rows of its newest version alone."""
    first = first_version_of(removed, 0)
    return first, unchanged_version(first, 0, removed=True)


def _removed_type(name: str, versions: Versions) -> EntityType:
    """Return a class as its newest version has it; it reads the rows of all versions."""
    removed = stored_type(name, versions[-1].shape, versions[-1].fields)
    learn(removed, versions)
    return removed
