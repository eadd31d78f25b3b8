"""`@migrate` marks a function that turns the stored attributes of an entity into those of a new schema version."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from penstock.model.declaration import caller_place
from penstock.model.entity_type import EntityType
from penstock.model.handler import check_marked
from penstock.model.time_limit import TIME_LIMITS

F = TypeVar("F", bound=Callable[[dict[str, Any]], Mapping[str, Any]])


class Migration(NamedTuple):
    """The mark of a migrating function.

    Attributes:
        cls: The entity class, or the name of a task: workflow and task.
        since: The number of the schema version that the function makes.
    """

    cls: type | str
    since: int


def migrate(cls: type | str, *, since: int) -> Callable[[F], F]:
    """Mark a function that makes the attributes of a schema version from those of the version before.

    The function is a member of the application: `App("shop", Item, in_cents)`. It gets the key and the attributes as they
    are stored (a `Decimal` and a reference are text), and returns the attributes of the new version, without the key.
    It runs at each read of a row that an earlier version has written, so it must be a pure function of its argument.

    Args:
        cls: The entity class. For the state of a task, the name of its workflow and its own name: `"wordcount.Count"`; for
            the attributes that all keys share, `"wordcount.Count.task"`.
        since: The number of the version that the function makes; `penstock explain` shows the number that is stored.
    """
    where = caller_place()

    def mark(function: F) -> F:
        check_marked(function, "@migrate", where)
        function.__migration__ = Migration(cls, since)  # type: ignore[attr-defined]
        return function

    return mark


def take_migrations(
    functions: list[Any], classes: Mapping[str, type], tasks: Mapping[str, EntityType]
) -> list[str]:
    """Give each class of stored rows its migrating functions, by the number of the version that they make.

    Returns:
        The complaints about functions that name no class, or a version that another function makes.
    """
    complaints: list[str] = []
    for function in functions:
        mark: Migration = function.__migration__
        entity_type = _stored_class(mark.cls, classes, tasks)
        if entity_type is None:
            known = f"; the tasks are {', '.join(tasks) or 'none'}" if type(mark.cls) is str else ""
            complaints.append(
                f"@migrate names {mark.cls!r}, which is no entity class of the application, and no task{known}"
            )
        elif type(mark.since) is not int or mark.since <= 1:
            complaints.append(
                f"@migrate: since={mark.since!r}; versions are numbered from 1, and a function makes a version from 2 on"
            )
        elif TIME_LIMITS in vars(function):
            complaints.append(
                f"@migrate: {function.__qualname__} has @limit(time=…), which has no effect here, because it runs in the "
                "time of the request that reads a row; remove it, or declare it at the methods"
            )
        elif entity_type.migrations.setdefault(mark.since, function) is not function:
            complaints.append(
                f"{entity_type.name} has two functions with @migrate(…, since={mark.since})"
            )
    return complaints


def _stored_class(
    given: type | str, classes: Mapping[str, type], tasks: Mapping[str, EntityType]
) -> EntityType | None:
    if isinstance(given, str):
        return tasks.get(given)
    if given not in classes.values():
        return None
    entity_type: EntityType = given.__reference__  # type: ignore[attr-defined]
    return entity_type
