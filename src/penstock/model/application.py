"""`App`: entity classes and functions that run together, checked as a whole.

The construction of an `App` resolves every annotation and reports all mistakes in one
`DefinitionError`. An `App` is immutable.
"""

import decimal
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import Context, copy_context
from inspect import Parameter
from types import FunctionType
from typing import Any, Final, overload

import msgspec

from penstock.base.case_twins import case_twins
from penstock.base.ids import EntityKey, Fingerprint, fingerprint_of
from penstock.base.near_names import did_you_mean
from penstock.base.schema import entities_in, reference_type
from penstock.base.subject_keys import SubjectKeys
from penstock.errors import ConfigError, DefinitionError, RequestError, Unencodable
from penstock.model.declaration import (
    CREATIONS,
    OTHER_NAME,
    RESERVED,
    Declaration,
    caller_place,
    where_of,
)
from penstock.model.effect import complaints_of_effects, plan_of
from penstock.model.entity import Entity, declaration_of, is_intact
from penstock.model.entity_type import EntityType
from penstock.model.handler import function_in, misplaced_mark
from penstock.model.index import bind_indexes
from penstock.model.limit import declare_times, limits_of
from penstock.model.migration import take_migrations
from penstock.model.references import subject_in
from penstock.model.registry import EntityInterface, Interface, interface_of
from penstock.model.request import Request, decode_request, encode_request, packed_append
from penstock.model.resolver import Resolver, default_complaints
from penstock.model.right import complaint_of_right, is_right, right_of
from penstock.model.route import routes_of
from penstock.model.schedule import Schedule, schedule_of
from penstock.model.sealed_value import opened_request, sealed_request
from penstock.model.shape import Shape
from penstock.model.signature import Signature
from penstock.model.streams.event_list import given_events, packed_given
from penstock.model.streams.flow import Flow
from penstock.model.streams.row_function import RowFunction
from penstock.model.streams.stream import Stream
from penstock.model.streams.topology import StreamMember, sort_out_streams, topology_of
from penstock.model.views.view import View, plans_of


def protected_request(
    class_of: Callable[[str], EntityType],
    keys: SubjectKeys | None,
    request: Request,
    arguments: Sequence[Any],
) -> Request:
    """Return a request with its arguments encrypted if it concerns a subject.

    Args:
        class_of: Returns an entity class of the application by its name.
        keys: The keys of the subjects; None in a process that has none.
        arguments: Its arguments, before they are encoded.
    """
    subject = _subject(class_of, request, arguments)
    if subject is None:
        return request
    if keys is None:
        raise ConfigError(
            f"a request concerns {subject} of a personal class, and this process has no keys to encrypt its arguments; "
            "open the data directory first"
        )
    return sealed_request(keys, subject, request)


def _subject(
    class_of: Callable[[str], EntityType], request: Request, arguments: Sequence[Any]
) -> EntityKey | None:
    """Return the called entity of a personal class, or else such an entity in the first argument that refers to one.

    An argument may have references inside of it; see `subject_in`.

    Args:
        class_of: Returns an entity class of the application by its name.
        arguments: Its arguments, before they are encoded.
    """
    entity_type = class_of(request.entity) if request.entity else None
    if entity_type is not None and entity_type.personal:
        # The key derived from the request is known only when it runs, and the arguments are in the
        # log before.
        if request.key is None:
            raise RequestError(
                f"{request.entity} is a personal class, so the request that creates an entity needs its key: the "
                "arguments are encrypted with a key of this entity"
            )
        return EntityKey(entity_type.prefix + request.key)
    for value in arguments:
        if (subject := subject_in(value)) is not None:
            return subject
    return None


# The first name of a class is in the key of each stored entity, in its shape and in snapshots, so it never changes:
# `EntityType.stored_name`. People and programs use the present name; a request with the former name reaches the class, too.


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


CALL: Final = "__call__"
_OVERLOADED: Final = overload(lambda: None).__code__
_AT_MODULE_LEVEL: Final = "write a function with @transactional in its place; if handlers alone use it, let its name begin with _"
_AS_METHOD: Final = "write a method with def"
_REMEDIES: Final[tuple[tuple[Any, str], ...]] = (
    ((staticmethod, classmethod), _AT_MODULE_LEVEL),
    (functools.cached_property, "use property: the cached value would be an undeclared attribute"),
    (
        (functools.partialmethod, functools.singledispatchmethod, functools.partial),
        _AS_METHOD,
    ),
)


def methods_of(entity_type: EntityType, resolver: Resolver) -> dict[str, Signature]:
    """Return the signatures of the public methods, and complain of members that only look like handlers.

    A private method is a helper of handlers. It must be sync, and cannot have the marks that requests obey. So is the right of
    the class, which it gets here.
    """
    signatures: dict[str, Signature] = {}
    for name, member in inspect.getmembers_static(entity_type.cls):
        if name in RESERVED or (name.startswith("__") and name.endswith("__") and name != CALL):
            continue
        label = f"{entity_type.name}.{name}"
        has_right = is_right(name, member)
        is_handler = _is_public(name) and not has_right
        complaint = misplaced_mark(member, is_handler=is_handler)
        complaint = complaint or (
            complaint_of_right(member) if has_right else _no_handler(name, member)
        )
        if complaint:
            resolver.complaints.append(f"{_where(member, entity_type)}: {label} {complaint}")
        elif not isinstance(member, FunctionType):
            if isinstance(member, property) and member.fget is not None:
                resolver.check_sync(label, member.fget)
        elif is_handler:
            signatures[name] = resolver.signature(label, member, entity_type.cls)
        else:
            resolver.check_sync(label, member)
            if has_right:
                entity_type.allows = right_of(member)
    return signatures


def _is_public(name: str) -> bool:
    return not name.startswith("_")


def _where(member: Any, entity_type: EntityType) -> str:
    function = function_in(member)
    is_foreign = function is None or function.__code__ is _OVERLOADED
    return entity_type.where if is_foreign else where_of(function)


def _no_handler(name: str, member: Any) -> str:
    """Say why no request can call a member that looks like a handler; empty for handlers and for all other members."""
    is_function = isinstance(member, FunctionType)
    if name == CALL and is_function:
        return "serves no request, because it has no name; give the method a name"
    if not _is_public(name) or isinstance(member, property | type):
        return ""
    if is_function:
        overloaded = member.__code__ is _OVERLOADED
        return f"has overloads and no implementation; {_AS_METHOD}" if overloaded else ""
    remedy = next((hint for kinds, hint in _REMEDIES if isinstance(member, kinds)), "")
    if (
        not remedy and callable(member) and hasattr(member, "__wrapped__")
    ):  # such as functools.cache
        remedy = _AS_METHOD
    return f"is a {type(member).__name__}, which no request can call; {remedy}" if remedy else ""


def creation_of(entity_type: EntityType, declaration: Declaration, resolver: Resolver) -> Signature:
    """Return the signature of `create`: that of `__init__`, or the key and the named attributes."""
    if declaration.initializer is not None:
        name = f"{entity_type.name}.create"
        return resolver.signature(name, declaration.initializer, entity_type.cls)
    return _by_attributes(entity_type, "create", entity_type.defaults)


def _by_attributes(entity_type: EntityType, name: str, defaults: Mapping[str, Any]) -> Signature:
    """Return the signature of a creation that takes the key, and attributes by name."""
    parameters = [
        Parameter(
            entity_type.key_name or "__key__",  # without a key there is a complaint
            Parameter.POSITIONAL_OR_KEYWORD,
            annotation=entity_type.constrained_key,
            default=None,  # derived from the request
        )
    ]
    parameters += [
        Parameter(
            attribute,
            Parameter.KEYWORD_ONLY,
            annotation=annotation,
            default=defaults.get(attribute, Parameter.empty),
        )
        for attribute, annotation in entity_type.constrained.items()
    ]
    function = getattr(entity_type.cls, name)
    return Signature(f"{entity_type.name}.{name}", function, parameters, Any, entity_type.where)


def creations_of(entity_type: EntityType, create: Signature) -> dict[str, Signature]:
    """Return the signature of each creation of a class; `create` is that of `create`."""
    kept = dict.fromkeys(entity_type.constrained, msgspec.UNSET)
    return {
        name: _by_attributes(entity_type, name, kept) if creation.keeps else create
        for name, creation in CREATIONS.items()
    }


def _internal_of(declaration: Declaration, methods: Mapping[str, Signature]) -> frozenset[str]:
    """Return the methods of a class that no caller from outside reaches."""
    if declaration.internal is None:
        return frozenset({*methods, *RESERVED})
    named = declaration.internal
    included = {name for name, each in CREATIONS.items() if not named.isdisjoint(each.includes)}
    return named | included | {name for name, each in methods.items() if each.internal}


def _exists_at(reference: Any) -> bool:
    return bool(type(reference).exists(reference))


_exists_at.__readonly__ = True  # type: ignore[attr-defined]  # it needs no block that enforces it
BUILT_IN: Final = {
    "delete": Signature("delete", lambda reference: reference.delete(), [], type(None), "penstock"),
    "exists": Signature("exists", _exists_at, [], bool, "penstock"),
}
"""The signatures of the methods that each entity has, by name."""


class Members(msgspec.Struct):
    """The members of an application.

    Attributes:
        migrations: The functions that are marked `@migrate`.
        flowing: Streams, workflows and all else that atoms flow through.
        interfaces: The interfaces of entity classes of other applications.
        views: The views that databases and search indexes show.
    """

    classes: dict[str, type] = msgspec.field(default_factory=dict)
    functions: dict[str, Callable[..., Any]] = msgspec.field(default_factory=dict)
    effects: dict[str, Callable[..., Any]] = msgspec.field(default_factory=dict)
    migrations: list[Callable[..., Any]] = msgspec.field(default_factory=list)
    flowing: list[StreamMember | Flow[Any]] = msgspec.field(default_factory=list)
    interfaces: list[EntityInterface] = msgspec.field(default_factory=list)
    views: list[View] = msgspec.field(default_factory=list)


def sort_out(members: Sequence[Any], complaints: list[str], place: str) -> Members:
    """Sort the members of an application, and add a complaint about each object that cannot be a member.

    Args:
        place: `file:line` of the application.
    """
    sorted_members = Members()
    taken: dict[str, Any] = {}
    sorted_members.flowing, others = sort_out_streams(members)
    sorted_members.interfaces = list(filter(None, map(interface_of, others)))
    for member in others:
        label = getattr(member, "__name__", repr(member))
        if hasattr(member, "__migration__"):
            sorted_members.migrations.append(member)
        elif isinstance(member, View):
            sorted_members.views.append(member)
            sorted_members.flowing += [each for each in member.tables if isinstance(each, Stream)]
        elif _is_bound(member):
            continue  # its entity class is a member, too
        elif label in taken and taken[label] is not member:
            complaints.append(
                f"{where_of(member)}: the name {label} is taken by {where_of(taken[label])}"
            )
        else:
            taken[label] = member
            _sort(member, label, sorted_members, complaints, place)
    return sorted_members


def _is_bound(member: object) -> bool:
    """Say whether a member is a class that stands for an entity class of another application."""
    interface = interface_of(member)
    return interface is not None and interface.is_bound


def _sort(member: Any, label: str, members: Members, complaints: list[str], place: str) -> None:
    if isinstance(member, type) and reference_type(member) is not None:
        members.classes[label] = member
    elif inspect.isfunction(member) and hasattr(member, "__transactional__"):
        members.functions[label] = member
    elif plan_of(member) is not None:
        members.effects[label] = member
    else:
        where = member.where if isinstance(member, RowFunction) else where_of(member)
        if where.endswith(
            "?"
        ):  # Python keeps no place of a value: the place of App has the mistake
            where = place
        complaints.append(
            f"{where}: {label} is neither an @entity class "
            f"nor a @transactional or @effect function{_advice_on(member)}"
        )


def _advice_on(member: object) -> str:
    """Return the remedy for an object that cannot be a member; empty if there is none."""
    match member:
        case RowFunction():
            return (
                f'; a row function belongs to a view, view("name", sqlite(), {member.name}), or to a table for other '
                f"applications: publish({member.name})"
            )
        case type() if hasattr(member, "on_event"):
            advice = f"a task belongs to a workflow: flow(stream).task({member.__name__})"
        case type():
            advice = f"if it is an entity, write class {member.__name__}(Entity)"
        case list() | tuple() | set() | frozenset():
            advice = "name the members one by one: App('shop', Item, User)"
        case str():
            advice = "name the class or the function itself"
        case FunctionType():
            advice = "if requests call it, write @transactional above it"
        case _ if reference_type(type(member)) is not None:
            advice = f"name its class, {type(member).__name__}"
        case _:
            return ""
    return f"; {advice}"


_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def _complaints_of_name(name: object, place: str) -> list[str]:
    """Check the name of an application that is defined at a place.

    Raises:
        DefinitionError: It is no text.
    """
    if not isinstance(name, str):
        raise DefinitionError([f"{place}: App takes its name first: App('shop', Item, User)"])
    is_name = _NAME.fullmatch(name) is not None
    return (
        [] if is_name else [f"{name!r} cannot name an application: letters, digits, - and _ only"]
    )


class App:
    """An application: `App("shop", User, Item, some_function)`.

    Attributes:
        name: The name of the application in its journal.
        context: The context variables at the time of construction; handlers begin with them.
        entities: The entity classes by name.
        former: The renamed ones by their former names.
        functions: The signatures, by name, of the functions that requests may call.
        effects: Those of the functions that call the outside, marked with `@effect`.
        routes: The application's own paths, from `@route`.
        limits: The limits of its members, from `@limit` and `stream(…, limits=…)`.
        time_limits: The milliseconds of each method, function and workflow with `@limit(time=…)`, by its name.
        stored: The classes whose rows the state has, by stored name: the entity classes, and those of the tasks' rows.
        shapes: The stored shape of each of them.
        removed: The classes that the application does not declare any more, and whose rows are stored; see `removed_class`.
        topology: The streams, workflows and portals.
        views: The views that databases and search indexes show, by name.
        members: The members, as they were given.
        interfaces: The interfaces of other applications, from `registry`.
        parts: The applications of the set; empty for a single application.
        keys: The keys of personal data; None until `use_keys`.
        is_personal: Whether there are rows of personal classes.
    """

    def __init__(
        self, name: str, *members: type | Callable[..., Any] | StreamMember | View
    ) -> None:
        """Check the members and bind them together.

        Args:
            name: Letters, digits, `-` and `_`.
            members: Entity classes, functions marked `@transactional`, `@effect` or `@migrate`, the workflows, streams, portals,
                splitters, sequencers, connections, generators and views of the application, and the interfaces that
                it declares with `registry`.

        Raises:
            DefinitionError: There are mistakes; the error has each with its file and line.
        """
        self.name = name
        self.members = members
        self.parts: tuple[App, ...] = ()
        place = caller_place()
        complaints = _complaints_of_name(name, place)
        # All complaints are collected, so that a single start shows every mistake.
        own = sort_out(members, complaints, place)
        resolver = Resolver(name, own.classes, [interface.cls for interface in own.interfaces])
        bound = [self._bind(cls, resolver, complaints) for cls in own.classes.values()]
        self.entities = {each.name: each for each in bound if interface_of(each.cls) is None}
        self.former = by_former_name(self.entities.values(), complaints)
        self.functions, self.effects = (
            {
                label: resolver.signature(label, function, is_effect=is_effect)
                for label, function in given.items()
            }
            for given, is_effect in ((own.functions, False), (own.effects, True))
        )
        # After a mistake, the types of some classes are not bound, and the rest would only repeat
        # it.
        if not complaints + resolver.complaints:
            self._settle()
        self.topology = topology_of(own.flowing, resolver)
        self.interfaces: tuple[Interface, ...] = (*own.interfaces, *self.topology.interfaces)
        complaints += [
            *complaints_of_effects(own.effects.values()),
            *take_migrations(own.migrations, own.classes, self.topology.rows),
            *resolver.complaints,
        ]
        has_tables = bool(self.topology.tables)
        self.routes = routes_of(self.entities, self.functions, complaints, has_tables=has_tables)
        self.limits = limits_of(self.entities, self.functions, self.topology.streams, complaints)
        self.time_limits = declare_times(
            self.entities, self.functions, self.topology.workflows, complaints
        )
        self.views = plans_of(own.views, self.entities, self.topology.streams, resolver)
        if complaints := [*complaints, *resolver.complaints, *self._name_complaints()]:
            raise DefinitionError(list(dict.fromkeys(complaints)))
        self.topology.settle()
        self.stored = {
            **{each.stored_name: each for each in self.entities.values()},
            **self.topology.rows,
        }
        self.shapes: dict[str, Shape] = {
            name: entity_type.shape for name, entity_type in self.stored.items()
        }
        self.keys: SubjectKeys | None = None
        self.learn_removed({})
        # As at the import: a variable that is set later must not reach the handlers of this process
        # alone.
        self.context = _present_context()

    def _name_complaints(self) -> Iterator[str]:
        """Yield a complaint about each path that is taken, and about names that are the same in SQL, which ignores case."""
        for route in self.routes if self.topology.tables else ():
            if route.path.startswith("/tables/"):
                yield (
                    f"{route.where}: {route.verb} {route.path} is taken by published tables, GET /tables/{{table}}; choose "
                    "another path"
                )
        rows, streams = self.topology.rows, self.topology.streams
        wheres = [{name: each.where for name, each in self.entities.items()}]
        wheres += [{name: each.where for name, each in rows.items()}]
        wheres += [{name: each.where for name, each in streams.items()}]
        for where in wheres:
            for earlier, later in case_twins(where):
                yield (
                    f"{where[later]}: {later} and {earlier} at {where[earlier]} differ only in case, which SQL ignores; "
                    "give it another name"
                )
        for each in (*self.entities.values(), *rows.values()):
            for earlier, later in case_twins((each.key_name, *each.attributes)):
                yield (
                    f"{each.where}: {each.name}.{later} and {each.name}.{earlier} differ only in case, which SQL ignores; "
                    "rename an attribute"
                )

    @property
    def indexed(self) -> dict[str, EntityType]:
        """The entity classes with indexes, by stored name."""
        return {name: each for name, each in self.stored.items() if each.indexes}

    @property
    def indexes(self) -> dict[str, str]:
        """The definitions of the indexes, by the places of their rows; see `Index.place` and `Index.stored_definition`."""
        return {
            index.place: index.stored_definition
            for each in self.indexed.values()
            for index in each.indexes
        }

    @property
    def schedules(self) -> dict[str, Schedule]:
        """The times of functions, from `@every` and `@cron`, by their names."""
        every = (schedule_of(each.function, label) for label, each in self.functions.items())
        return {each.name: each for each in every if each is not None}

    def _settle(self) -> None:
        """Settle the classes and functions, whose types are all bound now."""
        for entity_type in self.entities.values():
            entity_type.settle()
        for signature in (*self.functions.values(), *self.effects.values()):
            signature.settle()

    def _bind(self, cls: type, resolver: Resolver, complaints: list[str]) -> EntityType:
        """Resolve the annotations of an entity class, and check its declaration."""
        declaration = declaration_of(cls)
        entity_type: EntityType = cls.__reference__  # type: ignore[attr-defined]
        complaints += declaration.complaints
        if not is_intact(cls):
            complaints.append(
                f"{entity_type.where}: {entity_type.name} was changed by a decorator above it, such as @dataclass; "
                "remove the decorator: an entity class needs none"
                if issubclass(cls, Entity)
                else f"{entity_type.where}: {entity_type.name} was changed by a decorator above @entity; "
                "@entity comes last, on top"
            )
        annotations = {name: (annotation, owner) for name, annotation, owner in declaration.sources}
        key_source = annotations.pop(entity_type.key_name, None)
        key_annotation: Any = str
        if key_source is not None:
            what = f"{entity_type.name}.{entity_type.key_name}"
            key_annotation = resolver.key(*key_source, entity_type.where, what, cls)
        attributes = {
            name: resolver.resolve(
                annotation, owner, entity_type.where, f"{entity_type.name}.{name}", cls
            )
            for name, (annotation, owner) in annotations.items()
        }
        for name in sorted(attributes):
            if name in RESERVED:
                complaints.append(
                    f"{entity_type.where}: {entity_type.name}.{name} clashes with a method of every entity; {OTHER_NAME}"
                )
            if name.startswith("__"):
                complaints.append(
                    f"{entity_type.where}: {entity_type.name}.{name}: Python keeps such names"
                )
        entity_type.bind(key_annotation, attributes)
        entity_type.migrations = {}
        entity_type.methods = methods = methods_of(entity_type, resolver)
        entity_type.internal = _internal_of(declaration, methods)
        for name in sorted(entity_type.methods.keys() & attributes.keys()):
            complaints.append(
                f"{entity_type.where}: {entity_type.name}.{name} is a method and an attribute"
            )
        entity_type.creation = creation_of(entity_type, declaration, resolver)
        entity_type.creations = creations_of(entity_type, entity_type.creation)
        complaints += default_complaints(entity_type)
        complaints += bind_indexes(entity_type, is_foreign=interface_of(cls) is not None)
        complaints += [
            f"{entity_type.where}: {entity_type.name}.{name}: reference(exists=True) needs a type that names "
            "an entity class"
            for name in entity_type.must_exist
            if not entities_in(attributes.get(name, Any))
        ]
        return entity_type

    def entity(self, name: str) -> EntityType:
        """Return the entity class with a name, which may also be its former name.

        Raises:
            RequestError: The class does not exist; the message suggests similar names.
        """
        entity_type = self.entities.get(name) or self.former.get(name)
        if entity_type is None:
            raise RequestError(unknown("entity class", name, self.entities))
        return entity_type

    def is_internal(self, entity: str, method: str) -> bool:
        """Say whether no caller from outside reaches a method, or a function if `entity` is empty; see `internal`."""
        if entity in self.entities:
            return method in self.entities[entity].internal
        return not entity and method in self.functions and self.functions[method].internal

    def present_name(self, name: str) -> str:
        """Return the present name of an entity class for a former one, and any other name as it is."""
        return self.former[name].name if name in self.former else name

    def stored_name(self, name: str) -> str:
        """Return the name that stored entities of a class have, and any other name as it is."""
        return self.entities[name].stored_name if name in self.entities else name

    @property
    def readable(self) -> dict[str, EntityType]:
        """The classes whose rows can be read, by name: the stored ones, then the removed ones."""
        return {**self.stored, **self.removed} if self.removed else self.stored

    def learn_removed(self, removed: dict[str, EntityType]) -> None:
        """Let rows of classes be read that the application does not declare any more."""
        self.removed = removed
        self.is_personal = any(entity_type.personal for entity_type in self.readable.values())
        # The removed classes are new here, and have no keys yet.
        if self.keys is not None:
            self.use_keys(self.keys)

    def use_keys(self, keys: SubjectKeys) -> None:
        """Let personal classes encrypt and decrypt their rows with these keys."""
        self.keys = keys
        for entity_type in self.readable.values():
            entity_type.keys = keys
        for event_type in self.topology.event_types():
            event_type.keys = keys

    def request(
        self,
        entity: str,
        key: object,
        method: str,
        positional: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
    ) -> tuple[bytes, bytes]:
        """Encode a request.

        Args:
            entity: The name of the class; empty for a function.
            key: The key of the entity; None if a creation derives it.
            method: The name of a method or function, or `create`, `upsert`, `delete`, `exists`.
            positional: Arguments by position.
            named: Arguments by name.

        Returns:
            The body of the log entry, and its access hint: 8 bytes, little-endian, for the
            fingerprint of each entity that the arguments name. The arguments are encrypted if the request concerns
            an entity of a personal class.

        Raises:
            RequestError: The class, method or function does not exist, or the arguments do not fit.
            ConfigError: The arguments must be encrypted, and this process has no keys.
        """
        named = named or {}
        request, touched = self.readable_request(entity, key, method, positional, named)
        if self.is_personal:
            arguments = (*positional, *named.values())
            request = protected_request(self.entity, self.keys, request, arguments)
        body = encode_request(request)
        return body, b"".join([fingerprint.to_bytes(8, "little") for fingerprint in touched])

    def readable_request(
        self,
        entity: str,
        key: object,
        method: str,
        positional: Sequence[Any],
        named: Mapping[str, Any],
    ) -> tuple[Request, list[Fingerprint]]:
        """Return a request whose arguments are not encrypted, and the fingerprints of the entities that it names.

        A client sends it to a gateway, which encrypts it. For the log, use `request`.

        Args:
            entity: The name of the class; empty for a function.
            key: The key of the entity; None if a creation derives it.
            method: The name of the method or function.
            positional: Arguments by position.
            named: Arguments by name.

        Raises:
            RequestError: The class, method or function does not exist, or the arguments do not fit.
        """
        signature = self.signature(entity, method)
        if entity and key is not None and method in CREATIONS:
            self._refuse_lost(entity, method, positional, named)
        if entity:
            named = self._with_key(entity, key, signature, positional, named)
        arguments = signature.encode(positional, named)
        text = None
        touched = signature.fingerprints(positional, named)
        if entity and key is not None:
            entity_type = self.entity(entity)
            try:
                text = entity_type.text_of_either(key)
                if method in CREATIONS:
                    entity_type.check_new_key(entity_type.key_at(text))
            except Unencodable as error:
                raise RequestError(f"{entity}: {error}") from error
            # The called entity comes first: in the first round, it decides the task.
            touched.insert(0, fingerprint_of(EntityKey(entity_type.prefix + text)))
        elif entity and method not in CREATIONS:
            raise RequestError(f"{entity}.{method} needs a key")
        return Request(self.stored_name(entity), text, method, *arguments), touched

    def effect_request(
        self, name: str, positional: Sequence[Any], named: Mapping[str, Any]
    ) -> bytes:
        """Return the body of a request for an effect, with the present defaults of arguments that are left out.

        Raises:
            RequestError: The arguments do not fit.
        """
        signature = self.effects[name]
        named = signature.completed(positional, named)
        request = Request("", None, name, *signature.encode(positional, named))
        if self.is_personal:
            arguments = (*positional, *named.values())
            request = protected_request(self.entity, self.keys, request, arguments)
        return encode_request(request)

    def opened(self, request: Request) -> Request:
        """Return a request with readable arguments.

        Raises:
            Erased: They concern a subject that was erased.
        """
        return request if self.keys is None else opened_request(self.keys, request)

    def _refuse_lost(
        self, entity: str, method: str, positional: Sequence[Any], named: Mapping[str, Any]
    ) -> None:
        """Refuse values beside the key of a creation that no attribute would get."""
        entity_type = self.entity(entity)
        if entity_type.runs_initializer(method):
            return
        if positional:
            known = ", ".join(entity_type.attributes) or "there is none"
            raise RequestError(
                f"{entity}.{method} takes its key by position and attributes by name: {known}"
            )
        if entity_type.key_name in named:
            raise RequestError(
                f"{entity}.{method} got its key {entity_type.key_name} twice; give it once, by position or by name"
            )

    def _with_key(
        self,
        entity: str,
        key: object,
        signature: Signature,
        positional: Sequence[Any],
        named: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        """Add the key to the arguments of an `__init__` that takes it and did not get it."""
        if key is None:
            return named
        entity_type = self.entity(entity)
        if entity_type.initializer is None:
            return named
        if signature is not entity_type.creation or entity_type.key_name in named:
            return named
        taken = list(signature.parameters)[: len(positional)]
        if entity_type.key_name not in signature.parameters or entity_type.key_name in taken:
            return named
        return {**named, entity_type.key_name: key}

    def stream(self, name: str) -> Stream[Any]:
        """Return a stream, also that of a workflow, a splitter or a sequencer, or of failed atoms.

        Raises:
            RequestError: The stream does not exist; the message lists similar names.
        """
        streams = self.topology.streams
        if name not in streams:
            raise RequestError(unknown("stream", name, streams))
        return streams[name]

    def open_stream(self, name: str) -> Stream[Any]:
        """Return a stream that takes appends.

        Raises:
            RequestError: The stream does not exist, or only a workflow publishes on it.
        """
        streams = self.topology.streams
        open_names = [stream.name for stream in streams.values() if stream.is_open]
        if name in streams and name not in open_names:
            known = ", ".join(open_names) or "none"
            why = (
                "it has the changes of a database"
                if streams[name].is_captured
                else "a workflow publishes on it"
            )
            raise RequestError(
                f"stream {name} takes no appends, because {why}; streams that do: {known}"
            )
        if name not in streams:
            raise RequestError(unknown("stream", name, open_names))
        return streams[name]

    def taking_stream(self, name: str) -> Stream[Any]:
        """Return a stream that takes records of the log: appends, or the changes of a database; raises as `open_stream`."""
        stream = self.topology.streams.get(name)
        return stream if stream is not None and stream.is_captured else self.open_stream(name)

    def append(self, stream: str, events: Iterable[Any]) -> bytes:
        """Return the body of an append of events to a stream; events that refer to persons are encrypted.

        Raises:
            RequestError: The stream does not exist, or an event does not fit its type.
            ConfigError: An event must be encrypted, and this process has no keys.
        """
        taken = self.taking_stream(stream).events
        return packed_append(stream, packed_given(taken, given_events(stream, events)))

    def readable_append(self, stream: str, events: Iterable[Any]) -> Request:
        """Return an append whose events are not encrypted, as `readable_request` does; raises as `append`."""
        taken = self.open_stream(stream).events
        packed = packed_given(taken, given_events(stream, events), taken.encode_readable)
        return decode_request(packed_append(stream, packed))

    def key_of(self, entity: str, text: str) -> object:
        """Return the key that a word of a path or of a command line stands for.

        Raises:
            RequestError: The class does not exist, or the text is not a key of it.
        """
        entity_type = self.entity(entity)
        try:
            key: object = entity_type.key_at(text)
        except (Unencodable, ValueError) as error:
            raise RequestError(f"{entity}: {error}") from error
        return key

    def signature(self, entity: str, method: str) -> Signature:
        """Return the signature of the method or function that a request calls.

        Raises:
            RequestError: The name does not exist; the message suggests similar names.
        """
        if not entity:
            if method in self.functions:
                return self.functions[method]
            if method in self.effects:
                raise RequestError(
                    f"{method} is an effect, which no caller requests; a handler sends it: send({method}, …)"
                )
            raise RequestError(unknown("function", method, self.functions))
        entity_type = self.entity(entity)
        if method in entity_type.methods:
            return entity_type.methods[method]
        if method in entity_type.creations:
            return entity_type.creations[method]
        if method in RESERVED:
            return BUILT_IN[method]
        open_names = [
            name for name in (*entity_type.methods, *RESERVED) if name not in entity_type.internal
        ]
        raise RequestError(unknown(f"method of {entity}", method, open_names))


def _present_context() -> Context:
    """Return a copy of the present context, with a decimal context of its own."""
    context = copy_context()
    chosen = decimal.getcontext().copy()
    # Flags tell of earlier computations, which are not the same in each process.
    chosen.clear_flags()
    context.run(decimal.setcontext, chosen)
    return context


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Return the message about a name that does not exist, with names that are similar."""
    names = list(known)
    hint = did_you_mean(name, names) or f"; there are {', '.join(names) or 'none'}"
    return f"there is no {what} {name!r}{hint}"
