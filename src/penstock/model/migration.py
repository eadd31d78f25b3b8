"""`@migrate` marks a function that turns the stored attributes of an entity into those of a new schema version."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from penstock.model.declaration import caller_place
from penstock.model.entity_type import EntityType
from penstock.model.handler import check_marked

F = TypeVar("F", bound=Callable[[dict[str, Any]], Mapping[str, Any]])


class Migration(NamedTuple):
    """The mark of a migrating function.

    Attributes:
        cls: The entity class.
        since: The number of the schema version that the function makes.
    """

    cls: type
    since: int


def migrate(cls: type, *, since: int) -> Callable[[F], F]:
    """Mark a function that makes the attributes of a schema version from those of the version before.

    The function is a member of the application: `App("shop", Item, in_cents)`. It gets the key and the attributes as they
    are stored (a `Decimal` and a reference are text), and returns the attributes of the new version, without the key.
    It runs at each read of a row that an earlier version has written, so it must be a pure function of its argument.

    Args:
        cls: The entity class.
        since: The number of the version that the function makes; `penstock explain` shows the number that is stored.
    """
    where = caller_place()

    def mark(function: F) -> F:
        check_marked(function, "@migrate", where)
        function.__migration__ = Migration(cls, since)  # type: ignore[attr-defined]
        return function

    return mark


def migration_complaint(function: Any, classes: Mapping[str, type]) -> str | None:
    """Return what is wrong with a marked function; None if nothing is."""
    mark: Migration = function.__migration__
    if mark.cls not in classes.values():
        return f"@migrate names {mark.cls!r}, which is no entity class of the application"
    if type(mark.since) is not int or mark.since <= 1:
        return f"@migrate: since={mark.since!r}; versions are numbered from 1, and a function makes one from 2 on"
    return None


def take_migrations(functions: list[Any], classes: Mapping[str, type]) -> list[str]:
    """Give each entity class its migrating functions, by the number of the version that they make.

    Returns:
        The complaints about functions that name no class, or a version that another function makes.
    """
    complaints: list[str] = []
    for function in functions:
        complaint = migration_complaint(function, classes)
        if complaint is None:
            mark: Migration = function.__migration__
            entity_type: EntityType = mark.cls.__reference__  # type: ignore[attr-defined]
            other = entity_type.migrations.setdefault(mark.since, function)
            if other is not function:
                complaint = (
                    f"{entity_type.name} has two functions with @migrate(…, since={mark.since})"
                )
        if complaint is not None:
            complaints.append(complaint)
    return complaints
