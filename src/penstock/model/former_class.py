"""Former classes: the class of an entity as an epoch had it, with the attributes and types of that time.

A class knows its schema versions (`EntityType.learn`). For an epoch before the newest version, the version of that
epoch is built again from its stored shape, and reads rows of the versions before it. The functions of `@migrate` are
those of the present code.
"""

from penstock.model.entity_type import EntityType
from penstock.model.stored_class import stored_type


def type_at(declared: EntityType, epoch: int) -> EntityType:
    """Return a class as an epoch had it: the declared class itself, if its version was in force.

    An epoch before the first version has no rows of the class; it gets the first version.
    """
    versions = declared.versions
    index = max((i for i, version in enumerate(versions) if version.since <= epoch), default=0)
    if not versions or (index == len(versions) - 1 and versions[index].shape == declared.shape):
        return declared
    former = declared.former_types.get(index)
    if former is None:
        former = stored_type(declared.name, versions[index].shape)
        former.migrations = declared.migrations
        former.learn(versions[: index + 1])
        declared.former_types[index] = former
    return former
