"""The contents of mutable values: read at one time, compared, and put back in place; and whether a value is private.

An `Image` has the contents of all containers and records that an entity's attributes reach. To go back, each of them
gets its contents back and stays the same object, so every variable that holds one still holds a part of the entity.
What has not changed since is not written, so that a loop over it goes on.

A value is *private* to an entity if no other object refers to the value or to a mutable part of it: then the value
cannot change without a touch of the entity. CPython's reference counts tell this exactly. `is_private` never says yes
wrongly; a value of a class that cannot be stored is not private.
"""

from builtins import id as identity_of  # for one moment of one process, as `deepcopy` does
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from datetime import tzinfo
from enum import Enum
from functools import lru_cache
from itertools import chain
from operator import is_
from sys import getrefcount
from types import (
    BuiltinFunctionType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, Final, NamedTuple
from weakref import getweakrefcount

import msgspec

from penstock.base.schema import SCALARS
from penstock.errors import Unencodable

Attributes = dict[str, Any]
_Read = Callable[[Any], Any]
_Write = Callable[[Any, Any], None]
_get: Final = object.__getattribute__
_set: Final = object.__setattr__
_UNSET: Final = object()
"""The content of a slot without a value."""

_CONSTANT_BASES: Final = (
    *sorted(SCALARS, key=str),
    *(complex, tzinfo, Enum, range, slice),
    *(FunctionType, BuiltinFunctionType, MethodType, ModuleType, type),
)
_HEAP: Final = 1 << 9
"""CPython's flag of classes that are created at run time; the state of all others is known to C only."""

_KNOWN: Final = frozenset(
    {object, list, dict, set, tuple, frozenset, deque, OrderedDict, defaultdict, bytearray}
    | {BaseException, Exception}
    | {cls for cls in msgspec.Struct.__mro__ if not cls.__flags__ & _HEAP}
)
"""The built-in classes whose state `Form` reads and writes."""


class _Plain:
    """A class whose instances have only a dictionary, like most dataclasses."""


def _count_of_attributes() -> int:
    """Return the `getrefcount` of an object's attributes if only the object holds them."""
    plain = _Plain()
    values = _get(plain, "__dict__")
    return getrefcount(values)


def _count_in_loop() -> int:
    """Return the `getrefcount`, in a loop, of a value that only one container holds."""
    count = 0
    for value in [_Plain()]:
        count = getrefcount(value)
    return count


def _count_alone() -> int:
    """Return the `getrefcount` of an object that only a local variable holds."""
    plain = _Plain()
    return getrefcount(plain)


ALONE: Final = _count_alone()
_OWN: Final = _count_of_attributes()
_ONCE: Final = _count_in_loop()


def _is_constant(cls: type) -> bool:
    if cls in SCALARS or hasattr(cls, "__reference__"):
        return True
    return issubclass(cls, _CONSTANT_BASES)


is_constant: Final[Callable[[type], bool]] = lru_cache(maxsize=4_096)(_is_constant)
"""Says whether the values of a type are immutable and have no parts; references are."""


class Form:
    """How the values of one class are read and written: its own container, then the state of a Python object.

    The methods of built-in classes are called, so no method of a user's class runs.

    Raises:
        TypeError: Values of the class have a state that only C code knows.
    """

    __slots__ = ("_read", "_write", "has_dict", "is_container", "is_fixed", "slots")

    def __init__(self, cls: type) -> None:
        for base in cls.__mro__:
            if not base.__flags__ & _HEAP and base not in _KNOWN:
                raise TypeError(
                    f"a value of type {cls.__qualname__} has contents that cannot be read"
                )
        self.slots: tuple[MemberDescriptorType, ...] = tuple(
            member
            for base in cls.__mro__
            for member in vars(base).values()
            if type(member) is MemberDescriptorType
        )
        self.has_dict = cls.__dictoffset__ != 0
        container = next((each for each in _CONTAINERS if issubclass(cls, each[0])), None)
        self.is_container = container is not None
        self._read: _Read = container[1] if container is not None else _read_nothing
        self._write: _Write | None = container[2] if container is not None else None
        self.is_fixed = self._write is None and not self.slots and not self.has_dict

    def read(self, value: Any) -> "Contents":
        """Return the contents of a value."""
        items = self._read(value)
        attributes = _get(value, "__dict__") if self.has_dict else None
        if type(attributes) is not dict:
            attributes = None
        named = None if attributes is None else dict.copy(attributes)
        slots = tuple(_slot(member, value) for member in self.slots) if self.slots else ()
        return Contents(items, attributes, named, slots)

    def write(self, value: Any, contents: "Contents") -> None:
        """Let a value have contents, in place; what is the same already is not written."""
        if self._write is not None and not are_same_items(self._read(value), contents.items):
            self._write(value, contents.items)
        if contents.attributes is not None and contents.named is not None:
            if _get(value, "__dict__") is not contents.attributes:
                _set(value, "__dict__", contents.attributes)
            if not are_same_items(contents.attributes, contents.named):
                _write_dict(contents.attributes, contents.named)
        for member, wanted in zip(self.slots, contents.slots, strict=True):
            if _slot(member, value) is not wanted:
                if wanted is _UNSET:
                    member.__delete__(value)
                else:
                    member.__set__(value, wanted)


class Contents(NamedTuple):
    """The contents of a value.

    Attributes:
        items: A copy of the container; empty for other values.
        attributes: The `__dict__` of the value; None without one.
        slots: The values of the slots, in the order of `Form.slots`.
    """

    items: Any
    attributes: dict[str, Any] | None
    named: dict[str, Any] | None
    slots: tuple[Any, ...]

    def mutable(self) -> list[Any]:
        """Return the values inside which may be mutable or have mutable parts."""
        items = self.items
        groups: list[Iterable[Any]] = [items, self.slots]
        if type(items) is dict:
            groups.append(items.values())
        if self.named is not None:
            groups.append(self.named.values())
        parts: list[Any] = []
        for group in groups:
            if inner := {cls for cls in set(map(type, group)) if not is_constant(cls)}:
                parts += [part for part in group if type(part) in inner]
        return parts


form_of: Final[Callable[[type], Form]] = lru_cache(maxsize=4_096)(Form)
"""Returns how the values of a class are read and written; see `Form`."""


def _read_nothing(_: Any) -> tuple[()]:
    return ()


def _write_list(value: list[Any], items: Any) -> None:
    list.__setitem__(value, slice(None), items)


def _write_deque(value: deque[Any], items: Any) -> None:
    deque.clear(value)
    deque.extend(value, items)


def _write_dict(value: dict[Any, Any], items: dict[Any, Any]) -> None:
    """Let a dictionary have items, in their order; keys that it has already keep their places."""
    if len(value) >= len(items) and all(map(is_, dict.__iter__(value), items)):
        while len(value) > len(items):  # a loop over it finds its place, as after any `del`
            dict.popitem(value)
    else:
        dict.clear(value)
    dict.update(value, items)


def _write_ordered(value: OrderedDict[Any, Any], items: dict[Any, Any]) -> None:
    OrderedDict.clear(value)
    for key, item in items.items():
        OrderedDict.__setitem__(value, key, item)


def _write_set(members: set[Any], wanted: Any) -> None:
    set.clear(members)
    set.update(members, wanted)


def _read_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    return dict.copy(value) if type(value) is dict else dict(dict.items(value))


_CONTAINERS: Final[tuple[tuple[type, _Read, _Write | None], ...]] = (
    (list, list.copy, _write_list),
    (OrderedDict, lambda value: dict(OrderedDict.items(value)), _write_ordered),
    (dict, _read_dict, _write_dict),
    (set, frozenset, _write_set),
    (deque, lambda value: [*deque.__iter__(value)], _write_deque),
    (tuple, lambda value: [*tuple.__iter__(value)], None),
    (frozenset, lambda value: [*frozenset.__iter__(value)], None),
    (bytearray, bytes, lambda value, items: bytearray.__setitem__(value, slice(None), items)),
)
"""The containers: how they are read, and written."""


def _slot(member: MemberDescriptorType, value: Any) -> Any:
    try:
        return member.__get__(value)
    except AttributeError:
        return _UNSET


def are_same_items(now: Any, then: Any) -> bool:
    """Say whether two containers have the same objects, in the same order."""
    if len(now) != len(then):
        return False
    if type(then) is bytes:
        return bool(now == then)
    if type(then) is frozenset:
        return sorted(map(identity_of, now)) == sorted(map(identity_of, then))
    if not all(map(is_, now, then)):
        return False
    return type(then) is not dict or all(map(is_, now.values(), then.values()))


_NONE: Final[Mapping[int, int]] = {}


class Image:
    """The contents of everything mutable that an entity's attributes reach, at one time.

    Raises:
        Unencodable: The contents of a value cannot be read.
    """

    __slots__ = ("_parts", "_references", "values")

    def __init__(self, values: Attributes) -> None:
        self.values = values
        self._references: dict[int, int] | None = None
        self._parts: list[tuple[Any, Form, Contents]] = []
        seen: set[int] = set()
        pending: list[Any] = [values]
        try:
            while pending:
                value = pending.pop()
                identity = identity_of(value)
                if identity in seen:
                    continue
                seen.add(identity)
                form = form_of(type(value))
                contents = form.read(value)
                if not form.is_fixed:
                    self._parts.append((value, form, contents))
                pending += contents.mutable()
        except TypeError as error:
            raise Unencodable(f"an attribute cannot be kept at a savepoint: {error}") from error

    def restore(self) -> None:
        """Give all values their contents back."""
        for value, form, contents in self._parts:
            form.write(value, contents)

    def is_current(self, values: Attributes) -> bool:
        """Say whether attributes and everything that they reach are the same objects as then.

        If the answer is False, the caller must encode both to compare them: an equal value may have been assigned.
        """
        return values is self.values and all(
            are_same_contents(form.read(value), contents) for value, form, contents in self._parts
        )

    def then(self, encode: Callable[[Attributes], bytes]) -> bytes:
        """Return the encoding of the attributes as they were; all values keep the contents that they have now."""
        now = [(value, form, form.read(value)) for value, form, _ in self._parts]
        try:
            self.restore()
            return encode(self.values)
        finally:
            for value, form, contents in now:
                form.write(value, contents)

    def references(self) -> Mapping[int, int]:
        """Return how many references to each mutable object this image has."""
        if self._references is None:
            counts: dict[int, int] = {identity_of(self.values): 1}
            for value, _, contents in self._parts:
                held = [contents.attributes] if contents.attributes is not None else []
                for part in (value, *held, *contents.mutable()):
                    counts[identity_of(part)] = counts.get(identity_of(part), 0) + 1
            self._references = counts
        return self._references


class RowImage:
    """The contents of an entity that was read since: those of its row, which cannot put them back in place."""

    __slots__ = ()

    def references(self) -> Mapping[int, int]:
        """Return how many references to each mutable object this image has."""
        return _NONE


ROW_IMAGE: Final = RowImage()


def are_same_contents(now: Contents, then: Contents) -> bool:
    """Say whether contents are the same objects."""
    return (
        are_same_items(now.items, then.items)
        and now.attributes is then.attributes
        and (then.named is None or are_same_items(now.named, then.named))
        and all(map(is_, now.slots, then.slots))
    )


def is_private(entity: object, known: Mapping[int, int] = _NONE) -> bool:
    """Say whether only this entity holds its attributes and their mutable parts.

    Args:
        known: References that do not count, by the identity of the object: no code of a user has them.
    """
    values = _get(entity, "__dict__")
    if getrefcount(values) > _OWN + known.get(identity_of(values), 0):
        return False
    if all(type(value) in SCALARS for value in values.values()):
        return True
    try:
        return _are_private(values.values(), known)
    except (RecursionError, TypeError):
        return False


def _are_private(values: Iterable[Any], known: Mapping[int, int]) -> bool:
    for value in values:
        cls = type(value)
        if is_constant(cls):
            continue
        if (cls is tuple or cls is frozenset) and all(map(is_constant, set(map(type, value)))):
            continue
        if getrefcount(value) > _ONCE + known.get(identity_of(value), 0) or getweakrefcount(value):
            return False
        inside = _inside(cls, value, known)
        if inside is None or not _are_private(inside, known):
            return False
    return True


def _inside(cls: type, value: Any, known: Mapping[int, int]) -> Iterable[Any] | None:
    """Return the values in a container or a record that may be mutable; None if they are unknown."""
    if cls is list or cls is set or cls is deque or cls is tuple or cls is frozenset:
        return () if all(map(is_constant, set(map(type, value)))) else value
    if cls is dict:
        types = set(map(type, value)) | set(map(type, value.values()))
        return () if all(map(is_constant, types)) else chain(value.keys(), value.values())
    form = form_of(cls)
    if form.is_container:
        return None
    slots = _in_slots(form, value) if form.slots else ()
    if not form.has_dict:
        return slots
    attributes = _get(value, "__dict__")
    own = _OWN + known.get(identity_of(attributes), 0)
    return chain(slots, attributes.values()) if getrefcount(attributes) <= own else None


def _in_slots(form: Form, value: Any) -> Iterable[Any]:
    for member in form.slots:
        yield _slot(member, value)
