"""Schema versions: the stored shapes that a class has had, and how a row of one becomes a row of the next.

A journal keeps the versions of each class (`journal.shapes`). A version says for each attribute where its value comes
from in a row of the version before. So an upcast needs neither the code of former versions nor the present defaults.
"""

from collections.abc import Iterable

import msgspec

from penstock.model.shape import Shape


class Origin(msgspec.Struct, frozen=True):
    """The place from which an attribute gets its value in a row of the version before.

    Attributes:
        former: The name of the attribute there; None if the attribute is new.
        default: The value of a new attribute, encoded as in a row; empty if `former` is set.
    """

    former: str | None = None
    default: bytes = b""


class SchemaVersion(msgspec.Struct, frozen=True):
    """A version of the stored form of a class.

    Attributes:
        number: The next version has the next number. The first one has 1; if its class has functions of `@migrate` already,
            it has the highest number that they make.
        since: The first epoch that may have rows of it.
        attributes: The names of the attributes, in the order of a row, without the key.
        origins: The origin of each attribute; empty in version 1.
        migrated: Whether the function that `@migrate(…, since=number)` marks makes its rows. `origins` is empty then.
        fields: The defaults of the fields of records that rows of earlier versions may lack; see `field_defaults`.
        removed: Whether the application has no such class from then on. Its rows stay stored, and no epoch writes others.
    """

    number: int
    since: int
    shape: Shape
    attributes: tuple[str, ...]
    origins: dict[str, Origin] = {}
    migrated: bool = False
    fields: dict[str, bytes] = {}
    removed: bool = False


Versions = tuple[SchemaVersion, ...]
"""The versions of a class, the oldest first."""


def first_version(
    shape: Shape, attributes: Iterable[str], since: int, migrations: Iterable[int] = ()
) -> SchemaVersion:
    """Return the first version of a class.

    Args:
        attributes: The names of the attributes, in the order of a row, without the key.
        since: The first epoch that may have rows of it.
        migrations: The numbers of the versions that functions of `@migrate` make. Another journal has these
            versions; this one begins after them.
    """
    return SchemaVersion(max(migrations, default=1), since, shape, tuple(attributes))


def unchanged_version(former: SchemaVersion, since: int, *, removed: bool) -> SchemaVersion:
    """Return a version with the stored form of the one before: the class is removed, or is there again.

    Args:
        former: The version before; the new one has its number.
        since: The first epoch of the new version.
        removed: Whether the application has no such class from then on.
    """
    origins = {name: Origin(name) for name in former.attributes}
    return msgspec.structs.replace(
        former, since=since, origins=origins, migrated=False, removed=removed
    )
