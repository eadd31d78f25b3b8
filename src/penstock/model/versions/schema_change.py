"""The change from the newest stored version of a class to the class as it is declared now.

A change is recorded as a new schema version, or refused with a reason and a remedy for each attribute. Nothing is lost by
accident: a refused change leaves the stored version in force.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple

from penstock.base.case_twins import case_twins
from penstock.base.key_text import have_same_parts
from penstock.base.record import RecordKind, default_of, fields_of, kind_of
from penstock.base.schema import name_of
from penstock.model.attribute import new_value
from penstock.model.entity_type import EntityType
from penstock.model.schema_version import (
    Origin,
    SchemaVersion,
    Versions,
    first_version,
    unchanged_version,
)
from penstock.model.shape import Shape, described, field_place, records_of
from penstock.model.versions.stored_class import learn, stored_type
from penstock.model.versions.widening import narrowing, stored_default

_RETURNED: Final = "the class was removed, and is there again, with the entities that it had"


class SchemaChange(NamedTuple):
    """A change of a class.

    Attributes:
        changes: A line for each difference: an attribute added, removed, renamed, or of another type.
        refusals: The reasons why stored entities do not fit, each with a remedy; empty if the change is compatible.
        doubts: Those of the lines that may be a mistake.
    """

    name: str
    version: SchemaVersion
    changes: list[str]
    refusals: list[str]
    doubts: Sequence[str] = ()


class ClassComparison(NamedTuple):
    """The stored classes, compared with the classes of an application.

    Attributes:
        after: The versions of each stored class, with the declared one last.
        refusals: The reasons why stored entities cannot be read; empty if they can.
    """

    changes: list[SchemaChange]
    after: dict[str, Versions]
    refusals: list[str]


def compare_classes(
    stored: Mapping[str, Versions],
    classes: Mapping[str, EntityType],
    since: int,
    dropped: Collection[str] = (),
) -> ClassComparison:
    """Compare stored classes with the classes of an application, and let these read rows of all versions.

    Args:
        stored: The versions of each stored class, the oldest first.
        since: The first epoch that may have rows of new versions.
        dropped: The stored classes that the application may lack; any other class that it lacks is refused, because a
            class that disappears by accident would hide its entities.
    """
    comparison = ClassComparison([], {}, [])
    comparison.refusals.extend(_case_refusals(stored, classes))
    for name, versions in stored.items():
        declared = classes.get(name)
        if declared is None:
            if name in dropped or versions[-1].removed:
                _remove(comparison, name, versions, since)
            else:
                comparison.refusals.append(_absent(name, versions[-1], stored, classes))
            continue
        comparison.refusals.extend(_lost_migrations(versions, declared))
        change = change_of(versions, declared, since)
        added = () if change is None else (change.version,)
        comparison.after[name] = (*versions, *added)
        learn(declared, comparison.after[name])
        if change is not None:
            comparison.changes.append(change)
            comparison.refusals.extend(f"{name}: {refusal}" for refusal in change.refusals)
    return comparison


def _case_refusals(
    stored: Mapping[str, Versions], classes: Mapping[str, EntityType]
) -> Iterator[str]:
    """Yield a refusal of each class whose name differs only in case from that of another stored class."""
    known = [name for name in stored if name not in classes]
    fresh = [each.name for name, each in classes.items() if name not in stored or each.name != name]
    for earlier, later in case_twins(fresh, known):
        yield (
            f"{later}: entities of {earlier} are stored, and the two names differ only in case, which SQL ignores; give the "
            f'class another name, or, if it was renamed, write @entity(was="{earlier}") above it'
        )


def with_first_versions(
    versions: Mapping[str, Versions],
    written: Set[str],
    classes: Mapping[str, EntityType],
) -> dict[str, Versions]:
    """Return versions with a first one for each class that ever had an entity (`written`), and has no version yet."""
    names = sorted(written & classes.keys() - versions.keys())
    first = {name: (first_version_of(classes[name], 0),) for name in names}
    return {**versions, **first}


def first_version_of(declared: EntityType, since: int) -> SchemaVersion:
    """Return the first version of a class."""
    return first_version(declared.shape, declared.attributes, since, declared.migrations)


def _remove(comparison: ClassComparison, name: str, versions: Versions, since: int) -> None:
    """Add a class that is removed, or was removed before, to a comparison.

    Args:
        since: The first epoch without the class.
    """
    comparison.after[name] = versions
    if versions[-1].removed:
        return
    removal = unchanged_version(versions[-1], since, removed=True)
    comparison.after[name] = (*versions, removal)
    change = "the class is removed; its entities stay stored, and no request reaches them"
    comparison.changes.append(SchemaChange(name, removal, [change], []))


def _absent(
    name: str,
    newest: SchemaVersion,
    stored: Mapping[str, Versions],
    classes: Mapping[str, EntityType],
) -> str:
    """Return the refusal of an application that lacks a stored class."""
    alike = [
        other
        for other, declared in classes.items()
        if other not in stored and declared.shape.lines == newest.shape.lines
    ]
    if "." in name:
        return _absent_task(name, alike)
    renamed = (
        f' {alike[0]} has the same attributes: if the class was renamed, write @entity(was="{name}") above it, or '
        f'class {alike[0]}(Entity, was="{name}").'
        if alike
        else ""
    )
    return (
        f"{name}: entities of it are stored, and there is no such class any more; put the class back, or name it "
        f"with --drop {name} (deploy, run, rollback): its entities stay stored, and no request reaches them.{renamed}"
    )


def _absent_task(name: str, alike: Sequence[str]) -> str:
    """Return the refusal of an application that lacks a task with stored state.

    Args:
        name: The name of the task's rows: workflow and task.
        alike: The new classes with the same attributes.
    """
    workflow, task, *_ = name.split(".")
    others = [other for other in alike if "." in other]
    known = f" {others[0]} has the same attributes." if others else ""
    return (
        f"{name}: state of the task {task} of the workflow {workflow} is stored, and there is no such task any more.{known} If "
        f'its class was renamed, write .task(…, name="{task}"); if its workflow was renamed, keep the name that its state is '
        f'stored with: flow("{workflow}", …). Else put the task back, or name its state with --drop {name} (deploy, run, '
        "rollback): it stays stored, and no event reaches it."
    )


def _lost_migrations(versions: Versions, declared: EntityType) -> list[str]:
    """Return the functions of earlier versions that the code no longer has."""
    return [
        f"{declared.name}: the function with @migrate({declared.migrated_as}, since={version.number}) is gone; keep it, rows "
        "of earlier versions need it"
        for version in versions
        if version.migrated and version.number not in declared.migrations
    ]


def change_of(
    versions: Sequence[SchemaVersion], declared: EntityType, since: int
) -> SchemaChange | None:
    """Compare the newest version of a class with the class as it is declared; None if nothing has changed.

    Args:
        versions: The versions of the class, the oldest first.
        since: The first epoch that may have rows of the new version.
    """
    newest = versions[-1]
    number = newest.number + 1
    is_same = newest.shape.tag == declared.shape.tag
    late = [since_version for since_version in declared.migrations if since_version >= number]
    if is_same and not late:
        if not newest.removed:
            return None
        again = unchanged_version(newest, since, removed=False)
        return SchemaChange(declared.stored_name, again, [_RETURNED], [])
    former = stored_type(declared.stored_name, newest.shape)
    comparison = _Comparison(former, declared, number)
    if newest.removed:
        comparison.changes.append(_RETURNED)
    comparison.compare_keys()
    is_migrated = number in declared.migrations
    for name in declared.attributes:
        comparison.compare(name, is_migrated=is_migrated)
    comparison.look_for_removed()
    if is_same:
        comparison.refusals.append(
            f"@migrate(…, since={late[0]}) changes values, and the class is declared as it is stored, so rows of the two "
            "versions could not be told apart; remove the function and change the values with a request, or rename an "
            "attribute"
        )
    elif early := [since_version for since_version in late if since_version > number]:
        comparison.refusals.append(
            f"@migrate(…, since={early[0]}): the class is stored in version {newest.number}; write since={number}, or deploy "
            "the code of the versions between first"
        )
    origins = {} if is_migrated else comparison.origins
    names = tuple(declared.attributes)
    fields = field_defaults(declared, [version.shape for version in versions])
    version = SchemaVersion(number, since, declared.shape, names, origins, is_migrated, fields)
    refusals = comparison.refusals or [
        *_mistaken(versions, version),
        *_unfit(versions, version, declared),
    ]
    doubts = [] if is_migrated else comparison.renamed()
    return SchemaChange(
        declared.stored_name, version, comparison.changes + doubts, refusals, doubts
    )


class _Comparison:
    """Collects the changes, the origins and the refusals of a class."""

    def __init__(self, former: EntityType, declared: EntityType, number: int) -> None:
        self._former = former
        self._declared = declared
        self._mark = f"@migrate({declared.migrated_as}, since={number})"
        self._used: set[str] = set()
        self._former_names = _former_names(former.attributes, declared)
        self.changes: list[str] = []
        self.refusals: list[str] = []
        self.origins: dict[str, Origin] = {}

    def compare_keys(self) -> None:
        """Refuse another type of the key, in which keys have other texts; an enumeration may grow, a tuple may not."""
        was, now = self._former, self._declared
        before, after = was.key_annotation, now.key_annotation
        why = narrowing(before, after)
        if why is not None or not have_same_parts(before, after):
            reason = "" if why is None else f": {why}"
            what, remedy = (
                f"the key {was.key_name}",
                "add an attribute for the other identification",
            )
            if now.is_task:
                what, remedy = "the key", "give a task with other keys another name="
            self.refusals.append(
                f"{what}: {name_of(before)} became {name_of(after)}{reason}; keep the type of the key, and {remedy}"
            )
        elif was.key_name != now.key_name:
            self.changes.append(f"the key {was.key_name} is called {now.key_name}")

        if was.personal and not now.personal:
            self.refusals.append(
                "entities are stored encrypted, and the class is not personal any more; keep personal=True"
            )
        elif now.personal and not was.personal:
            self.changes.append("the class is personal: what is stored from now on is encrypted")

    def compare(self, name: str, *, is_migrated: bool) -> None:
        """Find the origin of an attribute.

        Args:
            is_migrated: Whether a function makes the new version, so that nothing about attributes is refused.
        """
        annotation = self._declared.attributes[name]
        former = self._former_names[name]
        if former is None:
            self._added(name, annotation, is_migrated=is_migrated)
            return
        self._used.add(former)
        self.origins[name] = Origin(former)
        before = self._former.attributes[former]
        if former != name:
            self.changes.append(f"{former} is called {name}")
        if (
            described(before)[0] != described(annotation)[0]
        ):  # equal unions have members in any order
            self.changes.append(f"{name}: {name_of(before)} became {name_of(annotation)}")
        why = narrowing(before, annotation)
        if why is not None and not is_migrated:
            self.refusals.append(
                f"{name}: {name_of(before)} is stored, {name_of(annotation)} is declared: {why}; keep the type, or "
                f"write a function with {self._mark}"
            )

    def _added(self, name: str, annotation: Any, *, is_migrated: bool) -> None:
        self.changes.append(f"+ {name}: {name_of(annotation)}")
        if is_migrated:
            return
        try:
            default = self._default(name, annotation)
        except ValueError as error:
            self.refusals.append(
                f"{name} is new, and its default cannot be stored: {error}; give it another default, or write "
                f"a function with {self._mark}"
            )
            return
        for earlier, _ in case_twins([name], self._former.attributes):
            self.refusals.append(
                f"{name} is new, and {earlier} is stored: the names differ only in case, which SQL ignores; write "
                f'{name}: … = was("{earlier}") if it was renamed, or give it another name'
            )
        if default is None:
            gone = sorted(self._former.attributes.keys() - self._declared.attributes.keys())
            renamed = f', or {name}: … = was("{gone[0]}") if it was renamed' if gone else ""
            self.refusals.append(
                f"{name} is new and has no default, so stored entities have no value for it; give it a default"
                f"{renamed}, or write a function with {self._mark}"
            )
            return
        self.origins[name] = Origin(None, default)

    def _default(self, name: str, annotation: Any) -> bytes | None:
        """Return the value that stored entities get for a new attribute; None if the class has none.

        Raises:
            ValueError: The default cannot be stored; the message says why.
        """
        declared = self._declared
        if name in declared.defaults:
            default = declared.defaults[name]
        elif name in declared.assigned:
            default = declared.assigned[name]
        else:
            return None
        return stored_default(lambda: new_value(default), annotation)

    def look_for_removed(self) -> None:
        """Note the attributes that are stored and no longer declared, and another order of the others."""
        declared = self._declared.attributes
        gone = [name for name in self._former.attributes if name not in self._used]
        self.changes += [f"- {name}: {name_of(self._former.attributes[name])}" for name in gone]
        if not self.changes and list(declared) != list(self._former.attributes):
            self.changes.append(f"the order is {', '.join(declared)}")
        if not self.changes:
            self.changes.append("a record or an enumeration of its attributes changed")

    def renamed(self) -> list[str]:
        """Return a line for each removed attribute whose type a new attribute has: it may be renamed."""
        declared = self._declared.attributes
        fresh = [name for name, origin in self.origins.items() if origin.former is None]
        lines = []
        for gone in (name for name in self._former.attributes if name not in self._used):
            former = described(self._former.attributes[gone])
            alike = next((name for name in fresh if described(declared[name]) == former), None)
            if alike is not None:
                lines.append(
                    f"the values of {gone} are lost when an entity changes; if it was renamed, write "
                    f'{alike}: {name_of(declared[alike])} = was("{gone}", default=…)'
                )
        return lines


def _former_names(stored: Collection[str], declared: EntityType) -> dict[str, str | None]:
    """Return the stored attribute that each attribute gets its values from; None for a new attribute.

    An attribute keeps its name, unless a renamed attribute takes its values; then it is a new attribute, or a renamed
    one, too.
    """
    names: dict[str, str | None] = {
        name: name if name in stored else None for name in declared.attributes
    }
    waiting = [name for name, former in names.items() if former is None]
    while waiting:  # `was` has no circles
        name = waiting.pop()
        former = declared.former_names.get(name, "")
        names[name] = former if former in stored else None
        if former in stored and names.get(former) == former:
            waiting.append(former)
    return names


def _mistaken(versions: Sequence[SchemaVersion], added: SchemaVersion) -> Iterator[str]:
    """Yield a refusal if rows of an earlier version with the same shape would be read with exchanged names.

    Rows of equal shapes are read alike, so an attribute must still have the values that it had there.
    """
    for index, earlier in enumerate(versions[:-1]):
        steps = [added, *reversed(versions[index + 1 :])]
        if earlier.shape.tag != added.shape.tag:
            continue
        if any(step.migrated for step in steps):
            yield (
                f"version {earlier.number} had the same attributes, and a function with @migrate has changed values since, "
                "so its rows would be mistaken; declare the attributes in another order"
            )
            continue
        for name in added.attributes:
            former: str | None = name
            for step in steps:
                former = None if former is None else step.origins[former].former
            if former not in (None, name):
                yield (
                    f"{name}: version {earlier.number} had the same attributes, and the values were in {former}, so its "
                    "rows would be mistaken; declare the attributes in another order"
                )


def _unfit(
    versions: Sequence[SchemaVersion], added: SchemaVersion, declared: EntityType
) -> Iterator[str]:
    """Yield a refusal for each attribute whose values in an earlier version do not fit, though those of the newest do.

    A field that a record lost and got again with another type is such a case: earlier rows have the former field.
    """
    names: dict[str, str | None] = {name: name for name in added.attributes}
    for step, earlier in pairwise([added, *reversed(versions)]):
        if step.migrated:
            return
        names = {name: former and step.origins[former].former for name, former in names.items()}
        stored = stored_type(declared.stored_name, earlier.shape).attributes
        for name, former in names.items():
            if former is None:
                continue
            why = narrowing(stored[former], declared.attributes[name])
            if why is not None:
                yield (
                    f"{name}: rows of version {earlier.number} have {name_of(stored[former])}: {why}; keep the type, or "
                    f"write a function with @migrate({declared.migrated_as}, since={added.number})"
                )


def field_defaults(declared: EntityType, earlier: Collection[Shape]) -> dict[str, bytes]:
    """Return the defaults of the fields that rows of earlier versions may lack.

    Returns:
        The encoded defaults, by the place of the field in the lines of the shape: `Depot.size`.
    """
    stored = [{line.partition(": ")[0] for line in shape.lines} for shape in earlier]
    defaults = {}
    for label, record in records_of(declared.key_annotation, declared.attributes).items():
        in_a_row = kind_of(record) is RecordKind.NAMED_TUPLE
        for index, (member, annotation) in enumerate(fields_of(record)):
            place = field_place(label, member.wire, index if in_a_row else None)
            if not member.has_default or member.is_optional or all(place in had for had in stored):
                continue
            with suppress(ValueError):  # it cannot be stored, so no row may lack the field
                make = partial(default_of, record, member.name)
                defaults[place] = stored_default(make, annotation)
    return defaults
