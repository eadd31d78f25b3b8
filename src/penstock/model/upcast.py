"""`Upcast` turns a row of an earlier schema version into a row of the present version.

The steps between two versions are recorded with them (`schema_version`). Rows are upcast when they are read, so a change
of a class costs nothing until then, and a row that is only read stays as it is.
"""

from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from typing import Any, Protocol

import msgspec

from penstock.base.lowering import lower_reply
from penstock.base.schema import ENCODER, UNENCODABLE, reason_of
from penstock.errors import MigrationFailed
from penstock.model.schema_version import SchemaVersion
from penstock.model.shape import Shape
from penstock.model.time_limit import Interrupted

Migrating = Callable[[dict[str, Any]], Mapping[str, Any]]
"""A function that `@migrate` marks."""

Complete = Callable[[SchemaVersion, dict[str, Any]], dict[str, Any]]
"""Returns the attributes of a version with the fields that its records have got, which an earlier row lacks."""


class DeclaredClass(Protocol):
    """The class as it is declared now; an `EntityType` is one."""

    name: str
    key_name: str
    shape: Shape
    attributes: dict[str, Any]
    migrations: dict[int, Migrating]

    def canonical(self, data: bytes) -> bytes:
        """Return the only encoding of the attributes in a row; raise `Unencodable` if they do not fit."""


def completed_as_declared(_: SchemaVersion, values: dict[str, Any]) -> dict[str, Any]:
    """Return attributes as they are: the decoder of the declared class adds the fields."""
    return values


class Upcast:
    """The way from each version of a class to its present version.

    Args:
        versions: Its versions, the oldest first; the last one is the declared shape.
    """

    def __init__(
        self, declared: DeclaredClass, versions: Sequence[SchemaVersion], complete: Complete
    ) -> None:
        self._declared = declared
        self._complete = complete
        self._versions = versions
        self._index = {version.shape.tag: index for index, version in enumerate(versions)}

    def knows(self, tag: int | None) -> bool:
        """Say whether rows with this tag can be turned into rows of the present version."""
        return tag in self._index

    def row(self, key: object, data: bytes) -> bytes:
        """Return a row of the present version, which is canonical."""
        tag, *stored = msgspec.msgpack.decode(data)
        begin = self._index[tag]
        values = dict(zip(self._versions[begin].attributes, stored, strict=True))
        for version in self._versions[begin + 1 :]:
            values = self._step(version, key, values)
            if (
                version.fields
            ):  # else the decoder of the class would give them the defaults of the present code
                values = self._complete(version, values)
        return self._encoded(values)

    def _step(self, version: SchemaVersion, key: object, values: dict[str, Any]) -> dict[str, Any]:
        """Return the attributes of a version, from those of the version before."""
        if version.migrated:
            return self._migrated(version, {self._declared.key_name: key, **values})
        return {
            name: msgspec.msgpack.decode(origin.default)
            if origin.former is None
            else values[origin.former]
            for name, origin in version.origins.items()
        }

    def _migrated(self, version: SchemaVersion, values: dict[str, Any]) -> dict[str, Any]:
        """Run the user's function for a version, outside of the running transaction."""
        name = f"{self._declared.name}: @migrate(…, since={version.number})"
        function = self._declared.migrations.get(version.number)
        if function is None:  # the class is removed, and the function went with it
            raise MigrationFailed(f"{name} is not in the code any more")
        try:
            made = Context().run(function, dict(values))
            lowered = {
                str(attribute): lower_reply(value) for attribute, value in dict(made).items()
            }
        except (Interrupted, KeyboardInterrupt):
            raise
        except BaseException as error:  # another one would end the thread of a reader
            raise MigrationFailed(f"{name} raised {type(error).__name__}") from error
        lowered.pop(self._declared.key_name, None)
        if lowered.keys() != set(version.attributes):
            missing = ", ".join(sorted(set(version.attributes) - lowered.keys())) or "nothing"
            extra = ", ".join(sorted(lowered.keys() - set(version.attributes))) or "nothing"
            raise MigrationFailed(f"{name} left out {missing}, and added {extra}")
        return lowered

    def _encoded(self, values: Mapping[str, Any]) -> bytes:
        """Return a row of attributes in the form in which rows store them."""
        declared = self._declared
        row = (declared.shape.tag, *(values[name] for name in declared.attributes))
        try:
            return declared.canonical(ENCODER.encode(row))
        except UNENCODABLE as error:
            raise MigrationFailed(
                f"{declared.name}: a row of an earlier version does not fit: {reason_of(error)}"
            ) from error
