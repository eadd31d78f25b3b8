"""Renamed classes: a class that was deployed with a former name says so, and keeps its stored entities.

The first name of a class is in the key of each stored entity, in its shape and in snapshots, so it never changes:
`EntityType.stored_name`. People and programs use the present name; a request with the former name reaches the class, too.
"""

from collections.abc import Iterable

from penstock.model.entity_type import EntityType


def by_former_name(classes: Iterable[EntityType], complaints: list[str]) -> dict[str, EntityType]:
    """Return the renamed classes by their former names, and add a complaint about each name that cannot be one."""
    every = list(classes)
    owners = {each.name: each for each in every}
    renamed: dict[str, EntityType] = {}
    for each in every:
        former = each.stored_name
        if former == each.name:
            continue
        other = owners.setdefault(former, each)
        if other is not each:
            complaints.append(
                f"{each.where}: {each.name} was {former}, and this name is taken by {other.where}; stored entities of the "
                "two classes could not be told apart, so give the other class a name that no class ever had"
            )
        renamed[former] = each
    return renamed
