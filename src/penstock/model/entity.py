"""`@entity`: how a plain class becomes one whose objects live in transactions.

A reference is an instance of a hidden subclass that holds the key alone. Its first touch loads the
entity and turns it, by assigning `__class__`, into an instance of the user's class. From then on it
is a plain Python object: attributes and methods cost what they cost in Python, nothing is wrapped.
"""

import functools
from collections.abc import Callable
from datetime import date
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeAlias, TypeVar, overload
from uuid import UUID

from penstock.base.ids import EntityKey
from penstock.errors import OutsideTransaction, UserError
from penstock.model.context import active, current
from penstock.model.copies import fresh
from penstock.model.declaration import Declaration, KeyMarker, declare, where_of
from penstock.model.entity_type import SHORT_KEY, EntityType

_SHARED: Final = frozenset({int, str, bool, float, bytes, type(None)})
"""Types of defaults that need no copy, because nothing can change them."""

_new: Final = object.__new__
_get: Final = object.__getattribute__
_set: Final = object.__setattr__

E = TypeVar("E")
P = ParamSpec("P")
T = TypeVar("T", bound=type)

Key: TypeAlias = str | int | UUID | date
"""The types that a key can have; a `datetime` is a `date`."""


def key() -> Any:
    """Mark the attribute that identifies an entity.

    Written as the attribute's default: `item_id: str = key()`.

    A key is a `str`, `int`, `UUID`, `date` or `datetime`; it takes at most 400 bytes as text.
    """
    return KeyMarker()


def entity(cls: T) -> T:
    """Make a class an entity: its objects have a key, attributes that last, and transactions.

    `Item("i1")` is the reference to an entity, `Item.create("i1", price=3)` creates it,
    `Item.upsert("i1", price=3)` does so even where it exists, which replaces it; `Item.exists("i1")`
    asks, `reference.delete()` deletes. What is wrong with the class is said
    when an application is built from it, all at once.
    """
    if "__reference__" in vars(cls):
        return cls  # a subclass of `Entity` is one already
    declaration = declare(cls)
    kind = EntityType(cls, declaration.key_name, where_of(cls))
    kind.initializer = declaration.initializer
    kind.defaults = declaration.defaults
    kind.of_text = functools.partial(_refer_text, kind)
    behaviour: dict[str, Any] = {
        "__reference__": kind,
        "__declaration__": declaration,
        "__new__": _refer,
        "__init__": _ignore,
        "__eq__": _equal,
        "__hash__": _hash,
        "__repr__": _show,
        "__copy__": _same,
        "__deepcopy__": _same,
        "__reduce__": _reduce,
        "create": classmethod(_own(_create, cls)),
        "upsert": classmethod(_own(_upsert, cls)),
        "exists": classmethod(_own(_exists, cls)),
        "delete": _own(_delete, cls),
    }
    for name, value in behaviour.items():
        if name != "__repr__" or vars(object)["__repr__"] is getattr(cls, "__repr__", None):
            setattr(cls, name, value)
    for name in [declaration.key_name, *declaration.defaults]:
        if name in vars(cls):
            delattr(cls, name)  # an instance that lost its attribute must not find the default
    kind.unloaded = _hidden(cls, _load_to_get, _load_to_set, _load_to_delete)
    kind.asleep = _hidden(cls, _wake_to_get, _wake_to_set, _wake_to_delete)
    return cls


class Entity:
    """The base class from which type checkers learn what `@entity` gives to a class.

    `class Item(Entity): …` makes an entity as `@entity` makes one of `class Item: …`; with the base
    class, mypy and pyright know `Item("i1")`, `Item.create`, `Item.upsert`, `Item.exists` and
    `reference.delete`. The base class adds no attribute, method or cost of its own.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        entity(cls)

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
            """Create an entity and return it; without a key it gets one derived from the request.

            Takes the key and then the attributes by name; where the class has an `__init__`, also
            the arguments of that.

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
        def exists(cls, key: Key | Self, /) -> bool:
            """Say whether an entity with this key, or the one of this reference, exists."""

        def delete(self) -> None:
            """Delete this entity; a later use of it raises `NoSuchEntity`."""


def _hidden(
    cls: type, get: Callable[..., Any], put: Callable[..., None], delete: Callable[..., None]
) -> type:
    """Return a subclass that only differs in what happens at a touch."""
    behaviour = {"__getattribute__": get, "__setattr__": put, "__delattr__": delete}
    names = {"__slots__": (), "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    reference = {"__reference__": vars(cls)["__reference__"]}  # not to be made an entity again
    return type(cls.__name__, (cls,), {**names, **reference, **behaviour})


def _own(function: Callable[..., Any], cls: type) -> FunctionType:
    """Return a copy of a function for one class, so that a profile says whose it is."""
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
        names["__new__"] is _refer
        and names["__init__"] is _ignore
        and names["__eq__"] is _equal
        and names["__hash__"] is _hash
        and "__dataclass_fields__" not in names
    )


def declaration_of(cls: type) -> Declaration:
    """Return what a class declared when it became an entity."""
    found: Declaration = vars(cls)["__declaration__"]
    return found


def _load(instance: Any) -> None:
    current().load(type(instance).__reference__, instance)


def _load_to_get(instance: Any, name: str) -> Any:
    kind: EntityType = type(instance).__reference__
    if name[:2] == "__" or name == kind.key_name or name == "delete":
        return _get(instance, name)
    current().load(kind, instance)
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
    kind: EntityType = type(instance).__reference__
    if name == kind.key_name or (name[:2] == "__" and name != "__dict__"):
        return _get(instance, name)
    current().wake(kind, instance)
    return getattr(instance, name)


WAKING: Final = _wake_to_get.__code__
"""What runs at the first touch of an attribute behind a savepoint's begin or end."""


def _wake_to_set(instance: Any, name: str, value: Any) -> None:
    current().wake(type(instance).__reference__, instance)
    setattr(instance, name, value)


def _wake_to_delete(instance: Any, name: str) -> None:
    current().wake(type(instance).__reference__, instance)
    delattr(instance, name)


def _refer(cls: type, /, *arguments: Any, **named: Any) -> Any:
    """Return the reference with a key: the one of the running transaction, if one runs."""
    kind: EntityType = cls.__reference__  # type: ignore[attr-defined]
    if len(arguments) != 1 or named:
        raise TypeError(
            f"{kind.name}(key) refers to an entity; {kind.name}.create(…) makes a new one"
        )
    value = arguments[0]
    if getattr(type(value), "__reference__", None) is kind:
        return value
    return _refer_text(kind, kind.key_text(value))


def _refer_text(kind: EntityType, text: str) -> Any:
    """Return the reference with a key's text: what decoding a stored reference ends in."""
    txn = active()
    if txn is None:
        return _unloaded(kind, text)
    full: Any = (
        kind.prefix + text
    )  # an entity key; calling `EntityKey` costs more than all else here
    found = txn.instances.get(full)
    if found is None:
        found = txn.instances[full] = _unloaded(kind, text)
    return found


def _unloaded(kind: EntityType, text: str) -> Any:
    key = text if kind.key_is_text and 0 < len(text) < SHORT_KEY else kind.key_at(text)
    instance: Any = _new(kind.unloaded)
    _set(instance, kind.key_name, key)
    return instance


def _ignore(instance: Any, /, *_: Any, **__: Any) -> None:
    """Do nothing: `_refer` has done it all."""


def _key(instance: Any) -> Any:
    return object.__getattribute__(instance, "__dict__")[type(instance).__reference__.key_name]


def _equal(instance: Any, other: object) -> Any:
    if instance is other:
        return True
    kind = type(instance).__reference__
    if getattr(type(other), "__reference__", None) is not kind:
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
    """Create an entity and return it; without a key it gets one derived from the request.

    Raises:
        AlreadyExists: The key is taken.
        TypeError: An attribute is missing, or there is none of that name.
    """
    kind, key, instance = _made(cls, arguments, named)
    return current().create(kind, key, instance)


def _upsert(cls: type, /, *arguments: Any, **named: Any) -> Any:
    """Create an entity, in the place of the one with its key if there is one; return it.

    Raises:
        TypeError: An attribute is missing, or there is none of that name.
    """
    kind, key, instance = _made(cls, arguments, named)
    txn = current()
    if txn.exists(kind, key):
        _delete(kind.of_text(key[len(kind.prefix) :]))
    return txn.create(kind, key, instance)


def _made(
    cls: type, arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[EntityType, EntityKey, Any]:
    """Return a new instance with all its attributes, which no transaction knows yet."""
    kind: EntityType = cls.__reference__  # type: ignore[attr-defined]
    current()  # complains where no transaction runs
    if kind.creation is None:
        raise OutsideTransaction(f"{kind.name} belongs to no application yet; build an App with it")
    instance: Any = _new(kind.cls)
    if kind.initializer is not None:
        kind.initializer(instance, *arguments, **named)
    else:
        instance.__dict__.update(_values(kind, arguments, named))
    values = instance.__dict__
    if kind.key_name not in values:
        values[kind.key_name] = _derived_key(kind)
    text = kind.key_text(values[kind.key_name])
    values[kind.key_name] = kind.key_at(text)
    return kind, EntityKey(kind.prefix + text), instance


def _values(kind: EntityType, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """Match the arguments of `create` with the key and the attributes."""
    if len(arguments) > 1:
        raise TypeError(f"{kind.name}.create takes its key by position and attributes by name")
    values = dict(named)
    if arguments:
        if kind.key_name in named:
            raise TypeError(f"{kind.name}.create got its key {kind.key_name} twice")
        values[kind.key_name] = arguments[0]
    if values.get(kind.key_name, ...) is None:
        del values[kind.key_name]  # derived from the request
    for name, default in kind.defaults.items():
        if name not in values:
            values[name] = default if type(default) in _SHARED else fresh(default)
    given = values.keys() - {kind.key_name}
    if given != kind.attributes.keys():
        missing = ", ".join(sorted(kind.attributes.keys() - given)) or "nothing else"
        extra = ", ".join(sorted(given - kind.attributes.keys())) or "nothing else"
        raise TypeError(f"{kind.name}.create lacks {missing} and does not know {extra}")
    return values


def _derived_key(kind: EntityType) -> Any:
    made = current().uuid()
    if kind.key_annotation is str:
        return str(made)
    if isinstance(kind.key_annotation, type) and isinstance(made, kind.key_annotation):
        return made
    raise UserError(f"{kind.name} needs a key: none can be derived for {kind.key_annotation}")


def _exists(cls: type, value: Any, /) -> bool:
    """Say whether an entity with this key, or the one that this reference names, exists."""
    kind: EntityType = cls.__reference__  # type: ignore[attr-defined]
    if getattr(type(value), "__reference__", None) is kind:
        return current().exists(kind, kind.key_of(value))
    return current().exists(kind, EntityKey(kind.prefix + kind.key_text(value)))


def _delete(instance: Any) -> None:
    """Delete this entity; using it afterwards raises `NoSuchEntity`."""
    kind: EntityType = type(instance).__reference__
    if type(instance) is kind.asleep:
        current().wake(kind, instance)
    elif type(instance) is not kind.cls:
        _load(instance)
    current().delete(kind, instance)
