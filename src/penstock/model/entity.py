"""`@entity` and `Entity` make classes whose objects live in transactions.

A reference is an instance of a hidden subclass and holds only the key. Its first touch loads the
entity and assigns `__class__`, so the reference becomes an instance of the user's class. From then
on it is a plain Python object without a wrapper: attributes and methods have their usual cost.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from enum import Enum
from inspect import Parameter
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeAlias, TypeVar, overload
from uuid import UUID

from penstock.base.ids import EntityKey
from penstock.errors import NoSuchEntity, OutsideTransaction, UserError
from penstock.model.attribute import new_value
from penstock.model.context import ACTIVE, active, current
from penstock.model.declaration import (
    CREATIONS,
    RESERVED,
    Declaration,
    KeyMarker,
    declare,
    where_of,
)
from penstock.model.entity_type import SHORT_KEY, EntityType
from penstock.model.index import declare_indexes
from penstock.model.personal import PersonalType
from penstock.native.choice import core

_SHARED: Final = frozenset({int, str, bool, float, bytes, type(None)})
"""The types of immutable defaults, which need no copy."""

_ANY_NUMBER: Final = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def _made(
    cls: type, arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[EntityType, EntityKey, Any]:
    """Return a new instance with all its attributes; the transaction does not hold it yet."""
    entity_type: EntityType = cls.__reference__  # type: ignore[attr-defined]
    current()  # raises OutsideTransaction if no transaction runs
    if entity_type.creation is None:
        raise OutsideTransaction(
            f"{entity_type.name} belongs to no application yet; build an App with it"
        )
    instance: Any = object.__new__(entity_type.cls)
    if entity_type.initializer is not None:
        entity_type.initializer(instance, *arguments, **named)
    else:
        instance.__dict__.update(_values(entity_type, arguments, named))
    values = instance.__dict__
    if entity_type.key_name not in values:
        values[entity_type.key_name] = _derived_key(entity_type)
    entity_type.check_new_key(values[entity_type.key_name])
    text = entity_type.key_text(values[entity_type.key_name])
    values[entity_type.key_name] = entity_type.key_at(text)
    return entity_type, EntityKey(entity_type.prefix + text), instance


def _values(
    entity_type: EntityType, arguments: tuple[Any, ...], named: dict[str, Any]
) -> dict[str, Any]:
    """Return the key and the attributes that `create` got by name, with defaults."""
    if len(arguments) > 1:
        raise TypeError(
            f"{entity_type.name}.create takes its key by position and attributes by name"
        )
    values = dict(named)
    if arguments:
        if entity_type.key_name in named:
            raise TypeError(f"{entity_type.name}.create got its key {entity_type.key_name} twice")
        values[entity_type.key_name] = arguments[0]
    if values.get(entity_type.key_name, ...) is None:
        del values[entity_type.key_name]  # derived from the request
    for name, default in entity_type.defaults.items():
        if name not in values:
            values[name] = default if type(default) in _SHARED else new_value(default)
    names = values.keys() - {entity_type.key_name}
    if names != entity_type.attributes.keys():
        missing = ", ".join(sorted(entity_type.attributes.keys() - names))
        extra = ", ".join(sorted(names - entity_type.attributes.keys()))
        wrong = [f"lacks {missing}"] if missing else []
        wrong += [f"does not know {extra}"] if extra else []
        known = ", ".join(entity_type.attributes) or "no attribute"
        raise TypeError(
            f"{entity_type.name}.create {' and '.join(wrong)}; it takes its key and {known}"
        )
    return values


def _derived_key(entity_type: EntityType) -> Any:
    made = current().derived.uuid()
    if entity_type.key_annotation is str:
        return str(made)
    if isinstance(entity_type.key_annotation, type) and isinstance(
        made, entity_type.key_annotation
    ):
        return made
    raise UserError(
        f"{entity_type.name} needs a key: none can be derived for {entity_type.key_annotation}"
    )


_new: Final = object.__new__
_get: Final = object.__getattribute__
_set: Final = object.__setattr__

E = TypeVar("E")
P = ParamSpec("P")
T = TypeVar("T", bound=type)

Key: TypeAlias = str | int | UUID | date | Enum | tuple[Any, ...]
"""The types that a key can have; a `datetime` is a `date`."""


def key() -> Any:
    """Mark the attribute that identifies an entity.

    Written as the attribute's default: `item_id: str = key()`.

    A key is a `str`, `int`, `UUID`, `date`, `datetime`, an `Enum` whose values are all `str` or all `int`, or
    a tuple of these. It takes at most 400 bytes as text.
    """
    return KeyMarker()


@overload
def entity(cls: T, /) -> T: ...
@overload
def entity(
    *, personal: bool = False, was: str = "", internal: bool | Sequence[str] = False
) -> Callable[[T], T]: ...
def entity(
    cls: Any = None,
    /,
    *,
    personal: bool = False,
    was: str = "",
    internal: bool | Sequence[str] = False,
) -> Any:
    """Make a class an entity: its objects have a key, attributes that last, and transactions.

    `Item("i1")` is the reference to an entity. `Item.create("i1", price=3)` creates the entity,
    `Item.upsert("i1", price=3)` creates or replaces it, `Item.update_or_create("i1", price=3)` creates it or changes only its
    price, `Item.exists("i1")` says whether it exists, and `reference.delete()` deletes it. `App` reports all mistakes
    of the class together.

    `@entity(personal=True)` is for a class whose entities are persons: what is stored of each entity is encrypted
    with a key of its own, and `penstock erase` destroys this key.

    `@entity(was="Item")` is for a class that was `Item` when it was deployed first: it keeps the stored entities. The
    class keeps this mark, because stored entities keep the first name of their class.

    `@entity(internal=("create", "upsert", "delete"))` is for a class whose entities only the application itself makes
    and deletes; `internal=True` is for a class that no caller from outside may call. `update_or_create` is internal if
    `create` or `upsert` is. See `internal`.
    """
    if cls is None:
        return functools.partial(_declared, personal=personal, was=was, internal=internal)
    return _declared(cls, personal=personal, was=was, internal=internal)


def _declared(cls: T, *, personal: bool, was: str, internal: bool | Sequence[str]) -> T:
    """Make a class an entity; see `entity`."""
    if "__reference__" in vars(cls):  # a subclass of `Entity` is an entity already
        _refuse_later(cls, personal=personal, was=was, internal=internal)
        return cls
    declaration = declare(cls, was)
    declaration.internal = _internal_of(declaration, cls, internal)
    described = PersonalType if personal else EntityType
    entity_type = described(cls, declaration.key_name, where_of(cls), was)
    entity_type.initializer = declaration.initializer
    entity_type.defaults = declaration.defaults
    entity_type.assigned = declaration.assigned
    entity_type.must_exist = tuple(dict.fromkeys(declaration.must_exist))
    entity_type.former_names = declaration.former_names
    entity_type.of_text = functools.partial(refer_text, entity_type)
    behaviour: dict[str, Any] = {
        "__reference__": entity_type,
        "__declaration__": declaration,
        "__new__": refer,
        "__init__": object.__init__,  # `refer` has set the key; as C it costs nothing
        "__eq__": _equal,
        "__hash__": _hash,
        "__repr__": _show,
        "__copy__": _same,
        "__deepcopy__": _same,
        "__reduce__": _reduce,
        **{name: classmethod(_own(function, cls)) for name, function in _CREATIONS.items()},
        "exists": classmethod(_own(_exists, cls)),
        "delete": _own(_delete, cls),
    }
    for name in [declaration.key_name, *declaration.defaults, *declaration.plain_fields]:
        if name in vars(cls):
            delattr(cls, name)  # an instance that lost its attribute must not find the default
    # After the defaults: an attribute that has the name of a method is refused by `App`, which needs the method.
    for name, value in behaviour.items():
        if name != "__repr__" or vars(object)["__repr__"] is getattr(cls, "__repr__", None):
            setattr(cls, name, value)
    declare_indexes(cls, declaration)
    entity_type.unloaded = _hidden(cls, load_to_get, _load_to_set, _load_to_delete)
    entity_type.asleep = _hidden(cls, _wake_to_get, _wake_to_set, _wake_to_delete)
    entity_type.copied = _hidden(cls, _get_of_copy, _refuse_to_set, _refuse_to_delete)
    return cls


def _internal_of(
    declaration: Declaration,
    cls: type,
    given: bool | Sequence[str],  # noqa: FBT001 -- as a user writes it
) -> frozenset[str] | None:
    """Return the methods of every entity that `internal=…` names; None for the whole class."""
    if isinstance(given, bool):
        return None if given else frozenset()
    listed = [given] if isinstance(given, str) else list(given)
    if wrong := [name for name in listed if name not in RESERVED]:
        declaration.complaints.append(
            f"{where_of(cls)}: {cls.__name__}: internal={wrong[0]!r}: it takes True, or names from "
            f"{', '.join(RESERVED)}; mark a method of yours with @internal"
        )
    return frozenset(listed)


def _refuse_later(cls: Any, *, personal: bool, was: str, internal: bool | Sequence[str]) -> None:
    """Complain of what `@entity` says of a class that is an entity already: its rows are declared without it."""
    known: EntityType = cls.__reference__
    former = "" if known.stored_name == known.name else known.stored_name
    given = [f'was="{was}"'] if was not in ("", former) else []
    given += ["personal=True"] if personal and not known.personal else []
    given += [f"internal={internal!r}"] if internal else []
    if given:
        words = ", ".join(given)
        cls.__declaration__.complaints.append(
            f"{known.where}: {known.name} is an entity by its base class, so @entity({words}) comes too late; write "
            f"class {known.name}(Entity, {words})"
        )


class Entity:
    """The base class of entities, with types for mypy and pyright.

    `class Item(Entity): …` declares the same entity as `@entity` above `class Item: …`. The base
    class tells type checkers the signatures of `Item("i1")`, `Item.create`, `Item.upsert`,
    `Item.update_or_create`, `Item.exists` and `reference.delete`. It adds no attribute, method or cost when a program runs.
    """

    __slots__ = ()  # the memory layout of a subclass is that of a class without a base

    def __init_subclass__(
        cls,
        *,
        personal: bool = False,
        was: str = "",
        internal: bool | Sequence[str] = False,
        **options: Any,
    ) -> None:
        super().__init_subclass__(**options)
        _declared(cls, personal=personal, was=was, internal=internal)

    if TYPE_CHECKING:

        def __init__(self, key: Key | Self, /) -> None:
            """Refer to the entity with this key; the entity is read at the first touch."""

        @overload
        @classmethod
        def create(cls, key: Key | None = None, /, **attributes: Any) -> Self: ...
        @overload
        @classmethod
        def create(cls: Callable[P, E], /, *arguments: P.args, **named: P.kwargs) -> E: ...
        @classmethod
        def create(cls: Any, /, *arguments: Any, **named: Any) -> Any:
            """Create an entity and return it; without a key, a key is derived from the request.

            Takes the key and then the attributes by name. If the class has an `__init__`, `create`
            takes the arguments of `__init__`, too.

            Raises:
                AlreadyExists: The key is taken.
                TypeError: An attribute is missing or unknown.
            """

        @overload
        @classmethod
        def upsert(cls, key: Key | None = None, /, **attributes: Any) -> Self: ...
        @overload
        @classmethod
        def upsert(cls: Callable[P, E], /, *arguments: P.args, **named: P.kwargs) -> E: ...
        @classmethod
        def upsert(cls: Any, /, *arguments: Any, **named: Any) -> Any:
            """Create an entity, or replace the entity with this key, and return it.

            Raises:
                TypeError: An attribute is missing or unknown.
            """

        @classmethod
        def update_or_create(cls, key: Key | None = None, /, **attributes: Any) -> Self:
            """Change the named attributes of an entity, or create it, and return it.

            The other attributes of an existing entity stay, and those of a new entity get their defaults. If the class has an
            `__init__`, a new entity is made by it, with the attributes that are its parameters; the named attributes are
            set then.

            Raises:
                NoSuchEntity: The entity does not exist, and a new entity needs an attribute that is not named.
                TypeError: An attribute is unknown.
            """

        @classmethod
        def exists(cls, key: Key | Self, /) -> bool:
            """Say whether the entity with this key or reference exists."""

        def delete(self) -> None:
            """Delete this entity; a later use of it raises `NoSuchEntity`."""


def _hidden(
    cls: type, get: Callable[..., Any], put: Callable[..., None], delete: Callable[..., None]
) -> type:
    """Return a subclass with its own methods for access to attributes."""
    behaviour = {"__getattribute__": get, "__setattr__": put, "__delattr__": delete}
    names = {"__slots__": (), "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    reference = {"__reference__": vars(cls)["__reference__"]}  # not to be made an entity again
    return type(cls.__name__, (cls,), {**names, **reference, **behaviour})


def _own(function: Callable[..., Any], cls: type) -> FunctionType:
    """Return a copy of a function for a class, so that profiles show the name of the class."""
    assert isinstance(function, FunctionType), "only functions have code to copy"
    name = function.__name__.removeprefix("_")
    code = function.__code__.replace(co_name=name, co_qualname=f"{cls.__qualname__}.{name}")
    made = FunctionType(code, function.__globals__, name)
    made.__doc__, made.__qualname__ = function.__doc__, code.co_qualname
    return made


def is_intact(cls: type) -> bool:
    """Say whether an entity class still behaves as `@entity` made it behave."""
    names = vars(cls)
    return (
        names["__new__"] is refer
        and names["__init__"] is object.__init__
        and names["__eq__"] is _equal
        and names["__hash__"] is _hash
        and "__dataclass_fields__" not in names
    )


def declaration_of(cls: type) -> Declaration:
    """Return the declaration of an entity class."""
    declaration: Declaration = vars(cls)["__declaration__"]
    return declaration


def _load(instance: Any) -> None:
    current().load(type(instance).__reference__, instance)


class ReferenceMethod:
    """A method of an entity that cannot be loaded here, as in `kit.call(seat.pay, 5)`; `call_of` makes a call of it."""

    def __init__(self, instance: Any, function: FunctionType, name: str) -> None:
        self.__self__ = instance
        self.__func__ = self.__wrapped__ = function
        self.__name__ = name
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__

    def __repr__(self) -> str:
        return f"<method {self.__name__} of {self.__self__!r}>"

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the method where the entity can be loaded now."""
        _load(self.__self__)
        return self.__func__(self.__self__, *arguments, **named)


def _load_to_get(instance: Any, name: str) -> Any:
    entity_type: EntityType = type(instance).__reference__
    if name[:2] == "__" or name == entity_type.key_name or name == "delete":
        return _get(instance, name)
    txn = active()
    if txn is None or not txn.reaches(entity_type):
        function = getattr(entity_type.cls, name, None)
        if type(function) is FunctionType:
            return ReferenceMethod(instance, function, name)
    (txn or current()).load(entity_type, instance)
    return getattr(instance, name)


def _get_loaded(instance: Any, name: str) -> Any:
    """Return an attribute of an entity that has been loaded, in as many frames as `_load_to_get`."""
    return getattr(instance, name)


def _load_to_set(instance: Any, name: str, value: Any) -> None:
    if name[:2] == "__":
        object.__setattr__(instance, name, value)
        return
    _load(instance)
    setattr(instance, name, value)


def _load_to_delete(instance: Any, name: str) -> None:
    _load(instance)
    delattr(instance, name)


def _wake_to_get(instance: Any, name: str) -> Any:
    entity_type: EntityType = type(instance).__reference__
    if name == entity_type.key_name or (name[:2] == "__" and name != "__dict__"):
        return _get(instance, name)
    current().wake(entity_type, instance)
    return getattr(instance, name)


def _get_of_copy(instance: Any, name: str) -> Any:
    entity_type: EntityType = type(instance).__reference__
    if name in entity_type.methods or name == "delete":
        return ReferenceMethod(instance, getattr(entity_type.cls, name), name)
    return _get(instance, name)


def _refuse_to_set(instance: Any, name: str, _value: Any) -> None:
    raise _copy_changed(instance, name)


def _refuse_to_delete(instance: Any, name: str) -> None:
    raise _copy_changed(instance, name)


def _copy_changed(instance: Any, name: str) -> OutsideTransaction:
    return OutsideTransaction(
        f"{_show(instance)} is a copy, so {name} cannot be changed in it; call a method of the entity, as in "
        f"client.call({type(instance).__name__}.method, entity)"
    )


WAKING: Final = _wake_to_get.__code__
"""The code that runs at the first access to a sleeping entity."""


def _wake_to_set(instance: Any, name: str, value: Any) -> None:
    current().wake(type(instance).__reference__, instance)
    setattr(instance, name, value)


def _wake_to_delete(instance: Any, name: str) -> None:
    current().wake(type(instance).__reference__, instance)
    delattr(instance, name)


def _refer(cls: type, /, *arguments: Any, **named: Any) -> Any:
    """Return the reference with a key, which is unique within the running transaction."""
    entity_type: EntityType = cls.__reference__  # type: ignore[attr-defined]
    if len(arguments) != 1 or named:
        raise TypeError(
            f"{entity_type.name}(key) refers to an entity; {entity_type.name}.create(…) makes a new one"
        )
    value = arguments[0]
    if getattr(type(value), "__reference__", None) is entity_type:
        if type(value) is entity_type.copied:
            return refer_text(entity_type, entity_type.text_of(value))
        return value
    return refer_text(entity_type, entity_type.key_text(value))


def _refer_text(entity_type: EntityType, text: str) -> Any:
    """Return the reference with the text of a key; decoded references come from here."""
    txn = active()
    # An entity key; calling `EntityKey` costs more than all else here.
    full: Any = entity_type.prefix + text
    if txn is not None and (known := txn.instances.get(full)) is not None:
        return known
    is_checked = entity_type.key_is_text and 0 < len(text) < SHORT_KEY
    instance: Any = _new(entity_type.unloaded)
    _set(instance, entity_type.key_name, text if is_checked else entity_type.key_at(text))
    if txn is not None:
        txn.instances[full] = instance
    return instance


def _key(instance: Any) -> Any:
    return object.__getattribute__(instance, "__dict__")[type(instance).__reference__.key_name]


def _equal(instance: Any, other: object) -> Any:
    if instance is other:
        return True
    entity_type = type(instance).__reference__
    if getattr(type(other), "__reference__", None) is not entity_type:
        return NotImplemented
    return bool(_key(instance) == _key(other))


def _hash(instance: Any) -> int:
    return (type(instance).__name__, _key(instance)).__hash__()  # never stored, never sent


def _show(instance: Any) -> str:
    return f"{type(instance).__name__}({_key(instance)!r})"


def _same(instance: Any, *_: Any) -> Any:
    return instance


def _reduce(instance: Any) -> Any:
    return type(instance).__reference__.cls, (_key(instance),)


def _create(cls: type, /, *arguments: Any, **named: Any) -> Any:
    """Create an entity and return it; see `Entity.create`."""
    entity_type, key, instance = made(cls, arguments, named)
    return current().create(entity_type, key, instance)


def _upsert(cls: type, /, *arguments: Any, **named: Any) -> Any:
    """Create or replace an entity and return it; see `Entity.upsert`."""
    return put(*made(cls, arguments, named))


def put(
    entity_type: EntityType,
    key: EntityKey,
    instance: Any,
    check: Callable[[Any], None] | None = None,
) -> Any:
    """Create the entity that `made` returns, or replace the entity with this key, and return it.

    Args:
        check: Is called with the entity before it is replaced, and may refuse that.
    """
    txn = current()
    if txn.exists(entity_type, key):
        former = entity_type.of_text(key[len(entity_type.prefix) :])
        if check is not None:
            check(former)
        _delete(former)
    return txn.create(entity_type, key, instance)


def _update_or_create(cls: type, /, *arguments: Any, **named: Any) -> Any:
    """Change the named attributes of an entity, or create it, and return it; see `Entity.update_or_create`."""
    return update(cls, arguments, named)


def update(
    cls: type,
    arguments: tuple[Any, ...],
    named: Mapping[str, Any],
    check: Callable[[Any], None] | None = None,
) -> Any:
    """Change the named attributes of an entity, or create it, and return it.

    Args:
        arguments: The key; none if it is among the named arguments, or is derived from the request.
        check: Is called with an entity that exists, before it is changed, and may refuse that.
    """
    entity_type: EntityType = cls.__reference__  # type: ignore[attr-defined]
    label = f"{entity_type.name}.update_or_create"
    values = dict(named)
    if len(arguments) > 1 or (arguments and entity_type.key_name in values):
        raise TypeError(f"{label} takes its key once, and attributes by name")
    given = values.pop(entity_type.key_name, None)
    given = arguments[0] if arguments else given
    if unknown := sorted(values.keys() - entity_type.attributes.keys()):
        raise TypeError(f"{label} does not know {', '.join(unknown)}")
    txn = current()  # raises OutsideTransaction if no transaction runs
    text = None
    if given is not None:
        entity_type.check_new_key(given)
        text = entity_type.key_text(given)
        if txn.exists(entity_type, EntityKey(entity_type.prefix + text)):
            held = entity_type.of_text(text)
            if check is not None:
                check(held)
            for name, value in values.items():
                setattr(held, name, value)
            return held
    return _created(entity_type, text, values)


def lacking_of(entity_type: EntityType, offered: Mapping[str, Any]) -> list[str]:
    """Return the parameters that a new entity of a class needs, and that are not among some named values."""
    assert entity_type.creation is not None, "an application was built with the class"
    return [
        each.name
        for each in entity_type.creation.parameters.values()
        if each.default is each.empty and each.kind not in _ANY_NUMBER and each.name not in offered
    ]


def _created(entity_type: EntityType, text: str | None, values: dict[str, Any]) -> Any:
    """Create the entity that `update` has not found.

    Args:
        text: The text of the key; None if it is derived from the request.
        values: The named attributes.
    """
    assert entity_type.creation is not None, "an application was built with the class"
    key = {} if text is None else {entity_type.key_name: entity_type.key_at(text)}
    offered = key | values
    parameters = entity_type.creation.parameters.values()
    if lacking := lacking_of(entity_type, offered):
        which = "" if text is None else f"{entity_type.name} {text!r} does not exist, and "
        raise NoSuchEntity(
            f"{entity_type.name}.update_or_create: {which}a new one needs {', '.join(lacking)}"
        )
    if entity_type.initializer is None:
        _, full, instance = made(entity_type.cls, (), offered)
        return current().create(entity_type, full, instance)
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    by_place = [
        each.name
        for each in parameters
        if each.kind is each.POSITIONAL_ONLY and each.name in offered
    ]
    by_name = {
        name: value
        for name, value in offered.items()
        if name not in by_place and (takes_any or name in entity_type.creation.parameters)
    }
    _, full, instance = made(entity_type.cls, tuple(offered[name] for name in by_place), by_name)
    if text is not None and full != entity_type.prefix + text:
        raise TypeError(
            f"{entity_type.name}.update_or_create got the key {text!r}, and its __init__ made {full}"
        )
    # Also those that `__init__` has set: the values do not depend on whether the entity existed.
    instance.__dict__.update(values)
    return current().create(entity_type, full, instance)


def _replace(
    cls: type,
    arguments: tuple[Any, ...],
    named: dict[str, Any],
    check: Callable[[Any], None] | None = None,
) -> Any:
    """Create an entity, or replace it; see `update`."""
    return put(*made(cls, arguments, named), check)


_CREATIONS: Final = {"create": _create, "upsert": _upsert, "update_or_create": _update_or_create}
assert _CREATIONS.keys() == CREATIONS.keys(), "each creation has its function"

CHECKING: Final = {"upsert": _replace, "update_or_create": update}
"""The creations that take a check of the entity that exists, in the form of `update`."""


def _exists(cls: type, value: Any, /) -> bool:
    """Say whether the entity with this key or reference exists."""
    entity_type: EntityType = cls.__reference__  # type: ignore[attr-defined]
    if getattr(type(value), "__reference__", None) is entity_type:
        return current().exists(entity_type, entity_type.key_of(value))
    return current().exists(
        entity_type, EntityKey(entity_type.prefix + entity_type.key_text(value))
    )


def _delete(instance: Any) -> None:
    """Delete this entity; see `Entity.delete`."""
    entity_type: EntityType = type(instance).__reference__
    if type(instance) is entity_type.asleep:
        current().wake(entity_type, instance)
    elif type(instance) is not entity_type.cls:
        _load(instance)
    current().delete(entity_type, instance)


made: Callable[[type, tuple[Any, ...], dict[str, Any]], tuple[EntityType, EntityKey, Any]] = _made
load_to_get: Callable[[Any, str], Any] = _load_to_get
refer: Callable[..., Any] = _refer
refer_text: Callable[[EntityType, str], Any] = _refer_text
if core is not None:  # the compiled functions do the same, and call these where they give up
    core.bind_entities(
        active=ACTIVE,
        short_key=SHORT_KEY,
        load_to_get=_load_to_get,
        get_loaded=_get_loaded,
        refer=_refer,
        refer_text=_refer_text,
        made=_made,
    )
    load_to_get, refer, refer_text = core.load_to_get, core.refer, core.refer_text
    made = core.made
