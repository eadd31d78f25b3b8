"""Namespaces: the meanings of the names of modules and classes, compared and restored behind the transactions of a task.

A handler can give any name another meaning: `json.dumps`, a method of an entity class, the code of a function, an entry of
one of Penstock's descriptions. Then it changes the answers to other requests of the process. So the *meanings* are
remembered: functions, classes, modules and descriptors by name, the constants of Python's standard library, and
Penstock's own descriptions as a whole. Values in variables of the application are ordinary code (a cache, a counter), and
are left alone.

Watched are the standard library; the application's modules, as far as its members lead to them, and the modules that they
import; Penstock's modules that process a transaction; the classes and functions of all of these; and the objects to which
an `App` refers. The comparison is by identity, so it runs no code of a user. Python's functions are called by names of this module,
because a handler may have replaced the built-in names.
"""

import builtins
import sys
from array import array
from collections.abc import Callable
from enum import EnumMeta
from functools import cache, lru_cache, partial
from gc import get_referents
from operator import attrgetter, is_
from types import FunctionType, ModuleType
from typing import Any, Final, NamedTuple

from penstock.model.application import App
from penstock.native.choice import core

_TRUSTED: Final = (
    "penstock.base.encoder",
    "penstock.base.lowering",
    "penstock.base.schema",
    "penstock.engine.execute",
    "penstock.engine.failure",
    "penstock.engine.isolation",
    "penstock.engine.namespaces",
    "penstock.engine.streams.cascade",
    "penstock.engine.streams.cascade_runner",
    "penstock.engine.streams.derived_ids",
    "penstock.engine.streams.flow_events",
    "penstock.engine.streams.handler_start",
    "penstock.engine.streams.held_state",
    "penstock.engine.streams.key_shares",
    "penstock.engine.streams.paused_flows",
    "penstock.engine.streams.resumption",
    "penstock.engine.streams.step_runner",
    "penstock.engine.streams.workflow_step",
    "penstock.engine.streams.waiting",
    "penstock.engine.streams.stored_cascade",
    "penstock.engine.task",
    "penstock.model.application",
    "penstock.model.context",
    "penstock.model.contents",
    "penstock.model.entity",
    "penstock.model.entity_type",
    "penstock.model.request",
    "penstock.model.savepoint",
    "penstock.model.signature",
    "penstock.model.streams.ask",
    "penstock.model.streams.event_type",
    "penstock.model.streams.portal",
    "penstock.model.streams.task_state",
    "penstock.model.streams.task_type",
    "msgspec",
    "msgspec.msgpack",
)
"""Modules that process a transaction, with their classes; all of their names are watched."""


_PYTHONS: Final = [
    "abc",
    "base64",
    "binascii",
    "bisect",
    "calendar",
    "cmath",
    "codecs",
    "collections",
    "collections.abc",
    "colorsys",
    "contextlib",
    "contextvars",
    "copy",
    "copyreg",
    "csv",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "enum",
    "fnmatch",
    "fractions",
    "functools",
    "gc",
    "genericpath",
    "hashlib",
    "heapq",
    "hmac",
    "html",
    "inspect",
    "io",
    "itertools",
    "json",
    "json.decoder",
    "json.encoder",
    "keyword",
    "locale",
    "logging",
    "math",
    "numbers",
    "operator",
    "os",
    "pathlib",
    "pickle",
    "posixpath",
    "pprint",
    "queue",
    "random",
    "re",
    "secrets",
    "statistics",
    "string",
    "struct",
    "sys",
    "textwrap",
    "threading",
    "time",
    "traceback",
    "types",
    "typing",
    "unicodedata",
    "urllib.parse",
    "uuid",
    "warnings",
    "weakref",
    "zlib",
    "zoneinfo",
]
"""The modules of the standard library that are watched, whether the application's modules import them or not."""

_LIBRARIES: Final = ("site-packages", "dist-packages")
_OWN: Final = "penstock"
_DESCRIPTIONS: Final = "penstock.model."
_MUTABLE: Final = 1 << 9
_IMMUTABLE: Final = 1 << 8
"""CPython's flags of classes: made at run time (Py_TPFLAGS_HEAPTYPE), and not to be changed (Py_TPFLAGS_IMMUTABLETYPE)."""

_NO_VERSION: Final = 0
"""Stands for an unknown version of a dictionary."""

_APPS_MAX: Final = 2
"""Applications whose namespaces are kept: the present one, and the former one."""

_size_of: Final = len
_class_of: Final = type
_same: Final = all
_each: Final = map
_numbered: Final = enumerate
_pairs: Final = zip
_put_in_class: Final = type.__setattr__
_drop_from_class: Final = type.__delattr__
_look_up: Final = type.__getattribute__
_code_of: Final = attrgetter("__code__")
_defaults_of: Final = attrgetter("__defaults__")
_named_defaults_of: Final = attrgetter("__kwdefaults__")
_bases_of: Final = attrgetter("__bases__")
_CLASS_NAMES: Final = vars(type)["__dict__"]
_BUILTINS: Final = frozenset(name for name in vars(builtins) if name[:2] != "__")
_NOTHING: Final = object()

_Rule = Callable[[Any, Any], bool]
"""Says something of a name and its value."""


class _Owner(NamedTuple):
    """A module, a class, or another object whose names are watched.

    Attributes:
        names: Its names; of a class, the dictionary behind its `__dict__`.
        is_kept: Whether a name must keep its value.
        is_foreign: Whether a new name must go.
    """

    label: str
    names: dict[Any, Any]
    cls: type | None
    is_kept: _Rule
    is_foreign: _Rule


def _always(_name: Any, _value: Any) -> bool:
    return True


def _never(_name: Any, _value: Any) -> bool:
    return False


def _is_computed(_name: Any, value: Any) -> bool:
    return value is not None


def _is_code(value: Any) -> bool:
    """Say whether a value is called, directly or as an attribute; this runs no code of its class."""
    if callable(value):
        return True
    try:
        _look_up(_class_of(value), "__get__")
    except AttributeError:
        return False
    return True


def _is_description(value: Any) -> bool:
    """Say whether a value is an object of Penstock's that describes the application."""
    place = _look_up(_class_of(value), "__module__")
    return isinstance(place, str) and place.startswith(_DESCRIPTIONS)


def _is_meaning(_name: Any, value: Any) -> bool:
    """Say whether a value is code, or leads to code; other values are data of the user."""
    return _is_code(value) or isinstance(value, ModuleType) or _is_description(value)


def _is_constant(name: Any, value: Any) -> bool:
    """Say whether a name of the standard library keeps its value; None stands for a value that is not yet computed."""
    return (value is not None and name[:1] != "_") or _is_meaning(name, value)


def _is_method(name: Any, value: Any) -> bool:
    """Say whether a new name of a class changes the behaviour of its objects."""
    return _is_code(value) or (value is None and name[:2] == "__")


def _hides(name: Any, _value: Any) -> bool:
    """Say whether a new name of a module hides a built-in name."""
    return name in _BUILTINS


def _is_no_module(_name: Any, value: Any) -> bool:
    """Say whether a new name is anything but a part of a package, which an import adds."""
    return _class_of(value) is not ModuleType


class Namespaces:
    """Some owners of names, and some functions; `learn` remembers their meanings."""

    def __init__(self, owners: list[_Owner], functions: list[FunctionType]) -> None:
        self._owners = owners
        self._names = [owner.names for owner in owners]
        self._values: list[tuple[Any, ...]] = [()] * len(owners)
        self._versions = array("Q", [_NO_VERSION]) * len(owners)  # CPython's, of the names then
        self._kept: list[dict[Any, Any]] = [{}] * len(owners)
        self._known: list[frozenset[Any]] = [frozenset()] * len(owners)
        self._functions = functions
        self._codes: list[Any] = [None] * len(functions)
        self._defaults: list[Any] = [None] * len(functions)
        self._named_defaults: list[Any] = [None] * len(functions)
        own = (owner.cls for owner in owners if owner.is_foreign is _is_method)
        self._classes = [cls for cls in own if cls is not None and not _is_pythons(cls.__module__)]
        self._bases: list[Any] = [None] * len(self._classes)
        self._metaclasses: list[Any] = [None] * len(self._classes)

    def learn(self) -> None:
        """Remember the present meanings."""
        for index in _changed(self._names, self._values, self._versions):
            self._learn(index)
        if self._have_other_code():
            self._codes = [function.__code__ for function in self._functions]
            self._defaults = [function.__defaults__ for function in self._functions]
            self._named_defaults = [function.__kwdefaults__ for function in self._functions]
        if not _classes_have_kept(self._classes, self._metaclasses, self._bases):
            self._bases = [cls.__bases__ for cls in self._classes]
            self._metaclasses = [type(cls) for cls in self._classes]

    def _learn(self, index: int) -> None:
        owner = self._owners[index]
        names = {**owner.names}
        self._values[index] = (*names.values(),)
        self._versions[index] = _NO_VERSION
        self._known[index] = frozenset(names)
        self._kept[index] = {
            name: value for name, value in names.items() if owner.is_kept(name, value)
        }

    def restore(self) -> str:
        """Restore the meanings that differ from the remembered ones.

        Returns:
            The name of one of them, for a message; empty without any.
        """
        restored = ""
        for index in _changed(self._names, self._values, self._versions):
            restored = self._restore(index) or restored
        if self._have_other_code():
            restored = self._restore_code() or restored
        if not _classes_have_kept(self._classes, self._metaclasses, self._bases):
            restored = self._restore_classes() or restored
        return restored

    def _restore_classes(self) -> str:
        restored = ""
        for cls, metaclass, bases in _pairs(self._classes, self._metaclasses, self._bases):
            if _class_of(cls) is not metaclass:
                _put_in_class(cls, "__class__", metaclass)
                restored = f"{cls.__name__}.__class__"
            if cls.__bases__ is not bases:
                _put_in_class(cls, "__bases__", bases)
                restored = f"{cls.__name__}.__bases__"
        return restored

    def _have_other_code(self) -> bool:
        """Say whether functions have another code, or other defaults, than the remembered ones."""
        return _have_other_code(self._functions, self._codes, self._defaults, self._named_defaults)

    def _restore_code(self) -> str:
        restored = ""
        remembered = zip(self._codes, self._defaults, self._named_defaults, strict=True)
        for function, (code, *defaults) in zip(self._functions, remembered, strict=True):
            if function.__code__ is not code or defaults != [
                function.__defaults__,
                function.__kwdefaults__,
            ]:
                function.__code__ = code
                function.__defaults__, function.__kwdefaults__ = defaults
                restored = f"the code of {function.__qualname__}"
        return restored

    def _restore(self, index: int) -> str:
        """Restore the names of one owner; values that may change are learned."""
        owner, restored = self._owners[index], None
        names, known = owner.names, self._known[index]
        for name in [*names]:
            if name not in known and owner.is_foreign(name, names[name]):
                restored = name
                if owner.cls is None:
                    del names[name]
                else:
                    _drop_from_class(owner.cls, name)
        for name, value in self._kept[index].items():
            if names.get(name, _NOTHING) is not value:
                restored = name
                if owner.cls is None:
                    names[name] = value
                else:
                    _put_in_class(owner.cls, name, value)
        self._learn(index)
        return "" if restored is None else f"{owner.label}.{restored}"


def _changed_names(
    names: list[dict[Any, Any]], values: list[tuple[Any, ...]], _versions: "array[int]"
) -> list[int]:
    """Return the indexes of the dictionaries whose values are not the remembered ones.

    Args:
        _versions: The versions at which the values were found equal; the compiled function looks at no dictionary that has
            its version still.
    """
    return [
        index
        for index, (now, before) in _numbered(_pairs(names, values))
        if _size_of(now) != _size_of(before) or not _same(_each(is_, now.values(), before))
    ]


def _have_changed(
    functions: list[FunctionType],
    codes: list[Any],
    defaults: list[Any],
    named_defaults: list[Any],
) -> bool:
    """Say whether functions have another code, or other defaults."""
    return not (
        _same(_each(is_, _each(_code_of, functions), codes))
        and _same(_each(is_, _each(_defaults_of, functions), defaults))
        and _same(_each(is_, _each(_named_defaults_of, functions), named_defaults))
    )


def _have_kept(classes: list[type], metaclasses: list[Any], bases: list[Any]) -> bool:
    """Say whether classes have these metaclasses, and these bases."""
    return _same(_each(is_, _each(_class_of, classes), metaclasses)) and _same(
        _each(is_, _each(_bases_of, classes), bases)
    )


_changed: Final = _changed_names if core is None else core.changed_names
_have_other_code: Final = _have_changed if core is None else core.have_changed
_classes_have_kept: Final = _have_kept if core is None else core.have_kept


class _Identity:
    """An object as a member of a set: equal to itself alone, without code of its class."""

    __slots__ = ("_object",)

    def __init__(self, value: Any) -> None:
        self._object = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self._object is other._object

    def __hash__(self) -> int:
        return object.__hash__(self._object)


class _Walk:
    """Collects the owners of names to which an application leads."""

    def __init__(self) -> None:
        self.owners: list[_Owner] = []
        self.functions: list[FunctionType] = []
        self._seen: set[_Identity] = set()
        self._left: list[Any] = []

    def walk(self, start: Any) -> None:
        """Collect all that an object leads to."""
        self._left.append(start)
        while self._left:
            value = self._left.pop()
            if _Identity(value) not in self._seen:
                self._seen.add(_Identity(value))
                self._visit(value)

    def _visit(self, value: Any) -> None:
        if isinstance(value, type):
            self._visit_class(value)
        elif _class_of(value) is FunctionType:
            self.add_function(value)
            self._visit_module(value.__module__)
        elif isinstance(value, ModuleType):
            self._visit_module(value.__name__)
        elif _class_of(value) is dict:
            self._add_contents(value)
        elif _class_of(value) in (list, tuple, set, frozenset):
            self._left += value
        else:
            self._visit_object(value)

    def _visit_object(self, value: Any) -> None:
        """Collect a description or a member of an enumeration, and the functions inside of a descriptor."""
        cls = _class_of(value)
        if _is_description(value) or isinstance(cls, EnumMeta):
            names = _dictionary_of(value)
            if names is None:
                self._left += (getattr(value, slot, None) for slot in _slots_of(cls))
            else:
                self.owners.append(_Owner(cls.__name__, names, None, _is_computed, _never))
                self._left += names.values()
        elif _is_code(value):
            self._left += _wrapped_in(value)

    def _add_contents(self, contents: dict[Any, Any]) -> None:
        self.owners.append(_Owner("a description", contents, None, _is_computed, _never))
        self._left += contents.values()

    def _visit_class(self, cls: type) -> None:
        """Collect a class, if it is not Python's or Penstock's; and its module, if it is the application's."""
        place = cls.__module__
        if _is_pythons(place) or _root_of(place) == _OWN or not _is_mutable(cls):
            return
        self.add_class(cls, _is_meaning, _is_method)
        self._left += cls.__bases__
        self._visit_module(place)
        if not _is_own(place):
            return
        for name, value in _names_of(cls).items():
            if _is_meaning(name, value) or (isinstance(cls, EnumMeta) and name[-5:] == "_map_"):
                self._left.append(value)
        if isinstance(cls, EnumMeta):
            self._left += cls.__members__.values()

    def _visit_module(self, name: str) -> None:
        """Collect a module of the application with all that it has, or a library without it."""
        module = sys.modules.get(name)
        names = _dictionary_of(module)
        if module is None or names is None or _Identity(names) in self._seen:
            return
        if name == builtins.__name__ or _root_of(name) == _OWN or name in _PYTHONS:
            return
        self._seen.add(_Identity(names))
        if _is_pythons(name):
            self.add_module(module, _is_constant, _hides)
            return
        self.owners.append(_Owner(name, names, None, _is_meaning, _hides))
        if _is_own(name):
            self._left += (each for key, each in names.items() if _is_meaning(key, each))

    def add_class(self, cls: type, is_kept: _Rule, is_foreign: _Rule) -> None:
        self._seen.add(_Identity(cls))
        if type(names := _names_of(cls)) is dict:  # those of `ctypes` have another kind
            self.owners.append(_Owner(cls.__qualname__, names, cls, is_kept, is_foreign))

    def add_module(self, module: ModuleType, is_kept: _Rule, is_foreign: _Rule) -> None:
        """Collect a module of Python or Penstock, with the classes and functions that it defines."""
        names = _dictionary_of(module)
        if names is None:
            return
        self.owners.append(_Owner(module.__name__, names, None, is_kept, is_foreign))
        is_whole = is_kept is _always
        for value in [*names.values()]:
            if isinstance(value, type):
                if value.__module__ == module.__name__ and _is_mutable(value):
                    self.add_class(
                        value,
                        is_kept if is_whole else _is_meaning,
                        is_foreign if is_whole else _is_method,
                    )
            elif (
                not is_whole
            ):  # the code of methods costs too much: each look is a miss of the cache
                self.add_function(value)

    def add_function(self, value: Any) -> None:
        if _class_of(value) is FunctionType:
            self._seen.add(_Identity(value))
            self.functions.append(value)
            self._left += _wrapped_in(value)
            if value.__kwdefaults__:
                self._left.append(value.__kwdefaults__)

    def namespaces(self) -> Namespaces:
        functions = {_Identity(each): each for each in self.functions}
        return Namespaces(self.owners, list(functions.values()))


def _wrapped_in(value: Any) -> list[Any]:
    """Return the functions inside of a descriptor, a partial function or a decorated function."""
    cls = _class_of(value)
    if cls is staticmethod or cls is classmethod:
        return [value.__func__]
    if cls is property:
        return [each for each in (value.fget, value.fset, value.fdel) if each is not None]
    if cls is partial:
        return [value.func]
    inner = (_dictionary_of(value) or {}).values()
    return [each for each in inner if _class_of(each) is FunctionType]


def _names_of(cls: type) -> dict[str, Any]:
    """Return the dictionary behind the `__dict__` of a class."""
    (names,) = get_referents(_CLASS_NAMES.__get__(cls))
    assert isinstance(names, dict), "a proxy refers to the dictionary alone"
    return names


def _dictionary_of(value: Any) -> dict[str, Any] | None:
    """Return the attributes of an object, without its own code; None if it has no dictionary."""
    try:
        names = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return names if _class_of(names) is dict else None


def _slots_of(cls: type) -> list[str]:
    return [slot for each in cls.__mro__ for slot in vars(each).get("__slots__", ())]


def _is_mutable(cls: type) -> bool:
    return bool(cls.__flags__ & _MUTABLE) and not cls.__flags__ & _IMMUTABLE


def _root_of(name: str) -> str:
    return name.partition(".")[0]


def _is_pythons(name: str) -> bool:
    return _root_of(name) in sys.stdlib_module_names


def _is_own(name: str) -> bool:
    """Say whether a module is the application's, and not a library's."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None) or ""
    return not any(part in file for part in _LIBRARIES)


@lru_cache(maxsize=1)
def _of_python(_modules: int) -> Namespaces:
    """Return the names of Penstock and of Python's standard library, of the modules that are loaded."""
    walk = _Walk()
    for name in _TRUSTED:
        if name in sys.modules:
            walk.add_module(sys.modules[name], _always, _is_no_module)
    for name in _PYTHONS:
        if name in sys.modules:
            walk.add_module(sys.modules[name], _is_constant, _hides)
    walk.owners.append(_Owner("sys.modules", sys.modules, None, _always, _never))
    return walk.namespaces()


@lru_cache(maxsize=_APPS_MAX)
def _of_app(app: App, _modules: int) -> Namespaces:
    walk = _Walk()
    walk.walk(app)
    return walk.namespaces()


@cache
def builtin_names() -> Namespaces:
    """Return Python's built-in names."""
    return Namespaces([_Owner("builtins", vars(builtins), None, _always, _is_no_module)], [])


def namespaces_of(app: App) -> tuple[Namespaces, Namespaces]:
    """Return the names of Python and Penstock, and those to which an application leads."""
    modules = len(sys.modules)
    return _of_python(modules), _of_app(app, modules)
