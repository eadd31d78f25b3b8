"""What an entity class declares, found from its annotations, its `__init__` and its `__key__`.

Both styles end in the same lists: the key's attribute, the attributes with their annotations, the
defaults, the methods. Everything wrong is collected as a complaint with file and line; nothing is
raised here, so that a developer hears of all of it at once.
"""

import ast
import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import msgspec

from penstock.base.schema import (
    KEY_SCALARS,
    alike,
    complaints_of,
    decode_reference,
    entities_in,
    lower_of,
    name_of,
    refuse,
)
from penstock.errors import Unencodable
from penstock.model.signature import Signature

RESERVED: Final = frozenset({"create", "delete", "exists"})
FORBIDDEN: Final = (
    "__new__",
    "__del__",
    "__eq__",
    "__hash__",
    "__getattr__",
    "__getattribute__",
    "__setattr__",
    "__delattr__",
    "__reduce__",
    "__reduce_ex__",
    "__copy__",
    "__deepcopy__",
)


CLASS_NAME_BYTES_MAX: Final = 100
_CLASS_VARIABLE: Final = re.compile(r"(\w+\.)*ClassVar\b")
_MUTABLE: Final = (list, dict, set, bytearray)


class KeyMarker:
    """What `key()` returns: marks the attribute that identifies an entity."""


@dataclass(slots=True)
class Declaration:
    """What one class declares, as found when it is defined; annotations still unresolved."""

    key_name: str = ""
    sources: list[tuple[str, Any, type]] = field(default_factory=list)  # name, annotation, owner
    defaults: dict[str, Any] = field(default_factory=dict)
    initializer: Callable[..., None] | None = None
    complaints: list[str] = field(default_factory=list)


def where_of(thing: Any) -> str:
    """Return `file:line` of a class or function."""
    code = getattr(inspect.unwrap(thing), "__code__", None) if callable(thing) else None
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    try:
        return f"{inspect.getsourcefile(thing)}:{inspect.getsourcelines(thing)[1]}"
    except (OSError, TypeError):
        return f"{getattr(thing, '__module__', '?')}:?"


def declare(cls: type) -> Declaration:
    """Find what an entity class declares."""
    found = Declaration()
    where = where_of(cls)
    if not 0 < len(cls.__name__.encode()) <= CLASS_NAME_BYTES_MAX:
        found.complaints.append(
            f"{where}: the name of an entity class takes at most {CLASS_NAME_BYTES_MAX} bytes"
        )
    lineage = [one for one in reversed(cls.__mro__) if one is not object]
    for one in lineage:
        _complain_of_names(found, cls, one, where)
        _declare_annotations(found, one)
    for one in lineage:
        initializer = vars(one).get("__init__")
        if inspect.isfunction(initializer) and initializer.__module__ != "typing":  # a Protocol's
            found.initializer = initializer
            _declare_assignments(found, one, initializer)
    _find_key(found, cls, where)
    return found


def _complain_of_names(found: Declaration, cls: type, owner: type, where: str) -> None:
    """Complain of what a class in the lineage defines and an entity must not."""
    names = vars(owner)
    if owner is not cls and "__reference__" in names:
        found.complaints.append(
            f"{where}: {cls.__name__} inherits from the entity {owner.__name__}; "
            "share code through a plain class instead"
        )
        return
    forbidden = [name for name in FORBIDDEN if name in names and names[name] is not None]
    if names.get("__slots__"):  # empty ones, as of ABC and Generic, do no harm
        forbidden.append("__slots__")
    for name in forbidden:
        found.complaints.append(f"{where}: {cls.__name__} must not define {name}")
    for name in sorted(RESERVED & names.keys()):
        found.complaints.append(
            f"{where}: {cls.__name__}.{name} clashes with what every entity has"
        )


def _declare_annotations(found: Declaration, owner: type) -> None:
    if "__reference__" in vars(owner):  # complained of already
        return
    for name, annotation in vars(owner).get("__annotations__", {}).items():
        if typing.get_origin(annotation) is ClassVar or annotation is ClassVar:
            continue
        if isinstance(annotation, str) and _CLASS_VARIABLE.match(annotation):
            continue
        _declare_attribute(found, name, annotation, owner)
        default = vars(owner).get(name, inspect.Parameter.empty)
        if isinstance(default, KeyMarker):
            if found.key_name not in ("", name):
                found.complaints.append(
                    f"{where_of(owner)}: {owner.__name__} marks two keys, "
                    f"{found.key_name} and {name}; an entity has one"
                )
            found.key_name = name
        elif inspect.isroutine(default) or isinstance(
            default, property | classmethod | staticmethod
        ):
            found.complaints.append(
                f"{where_of(owner)}: {owner.__name__}.{name} is a method and an attribute"
            )
        elif default is not inspect.Parameter.empty:
            found.defaults[name] = deepcopy(default)


def _declare_attribute(found: Declaration, name: str, annotation: Any, owner: type) -> None:
    found.sources = [source for source in found.sources if source[0] != name]
    found.sources.append((name, annotation, owner))


def _parse(function: Callable[..., Any]) -> ast.FunctionDef | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    return next((node for node in tree.body if isinstance(node, ast.FunctionDef)), None)


def _assignments(
    tree: ast.FunctionDef, owner: str
) -> Iterator[tuple[str, ast.expr | None, ast.expr | None]]:
    """Yield (attribute, annotation, value) of every assignment to `self.…`."""
    this = tree.args.args[0].arg if tree.args.args else "self"

    def attribute_of(target: ast.AST) -> str | None:
        match target:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name == this:
                hidden = attribute.startswith("__") and not attribute.endswith("__")
                return f"_{owner.lstrip('_')}{attribute}" if hidden else attribute
            case _:
                return None

    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(target=target, annotation=annotation, value=value):
                if name := attribute_of(target):
                    yield name, annotation, value
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    whole = not isinstance(target, ast.Tuple | ast.List)
                    for part in ast.walk(target):
                        if name := attribute_of(part):
                            yield name, None, value if whole else None
            case _:
                pass


def _declare_assignments(found: Declaration, owner: type, initializer: Callable[..., None]) -> None:
    where = where_of(initializer)
    tree = _parse(initializer)
    if tree is None:
        found.complaints.append(f"{where}: the source of {owner.__name__}.__init__ is not readable")
        return
    parameters = inspect.signature(initializer).parameters
    for name, annotation, value in _assignments(tree, owner.__name__):
        known = any(source[0] == name for source in found.sources)
        match annotation, value:
            case ast.expr(), _:
                _declare_attribute(found, name, ast.unparse(annotation), owner)
            case None, ast.Name(id=parameter) if (
                not known
                and parameter in parameters
                and parameters[parameter].annotation is not inspect.Parameter.empty
            ):
                _declare_attribute(found, name, parameters[parameter].annotation, owner)
            case None, ast.Constant(value=constant) if not known and constant is not None:
                _declare_attribute(found, name, type(constant), owner)
            case _ if known:
                pass
            case _:
                found.complaints.append(
                    f"{where}: {owner.__name__}.{name} has no annotation; "
                    f"write `self.{name}: … = …`"
                )


def _find_key(found: Declaration, cls: type, where: str) -> None:
    keyed = getattr(cls, "__key__", None)
    name = cls.__name__
    if keyed is None and not found.key_name:
        found.complaints.append(
            f"{where}: {name} has no key; mark an attribute with `= key()`, or define `__key__`"
        )
        return
    if keyed is None:
        if found.initializer is not None:
            found.complaints.append(
                f"{where}: {name} has both key() and __init__; use key() alone, "
                "or __init__ with __key__"
            )
        return
    if found.key_name:
        found.complaints.append(f"{where}: {name} has both key() and __key__; use one")
        return
    tree = _parse(keyed)
    body = tree.body if tree else []
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]  # a docstring
    match body:
        case [ast.Return(value=ast.Attribute(value=ast.Name(), attr=attribute))]:
            found.key_name = attribute
        case _:
            found.complaints.append(
                f"{where_of(keyed)}: {name}.__key__ must be `return self.<attribute>`"
            )
            return
    if all(source[0] != found.key_name for source in found.sources):
        found.complaints.append(
            f"{where_of(keyed)}: {name}.__key__ returns {found.key_name}, which is no attribute"
        )


class Resolver:
    """Turns the annotations of an application into types, and collects what cannot be one."""

    def __init__(self, app: str, entities: Mapping[str, type]) -> None:
        self._app = app
        self._entities = entities
        self.complaints: list[str] = []

    def resolve(self, annotation: Any, owner: Any, where: str, what: str) -> Any:
        """Return the type that an annotation names, `Any` after a complaint."""
        if annotation is None:
            return type(None)
        names = self._names_at(owner)
        try:
            carrier = type("Carrier", (), {"__annotations__": {"it": annotation}})
            resolved = typing.get_type_hints(carrier, names, {})["it"]
        except NameError as error:
            self.complaints.append(f"{where}: {what}: unknown type {error.name!r}")
            return Any
        except (SyntaxError, TypeError, AttributeError) as error:
            self.complaints.append(f"{where}: {what}: {annotation!r} is no type ({error})")
            return Any
        complaints = complaints_of(resolved)
        complaints += [
            f"the entity {one.__name__} is no part of the application {self._app}; name it there"
            for one in dict.fromkeys(entities_in(resolved))
            if self._entities.get(one.__name__) is not one
        ]
        self.complaints += [f"{where}: {what}: {complaint}" for complaint in complaints]
        return Any if complaints else resolved

    def _names_at(self, owner: Any) -> dict[str, Any]:
        """Return what names mean where `owner` is defined.

        Entities of the application are known everywhere, so that modules that know each other by
        reference only need no import that runs; a module's own names come first.
        """
        module = inspect.getmodule(owner)
        names = {**self._entities, **(vars(module) if module else {})}
        if isinstance(owner, type):
            names[owner.__name__] = owner
        elif inspect.isfunction(owner):
            names.update(owner.__globals__)
            cells = zip(owner.__code__.co_freevars, owner.__closure__ or (), strict=True)
            names.update((name, cell.cell_contents) for name, cell in cells)
        return names

    def key(self, annotation: Any, owner: type, where: str, what: str) -> Any:
        """Return the type of a key, `str` after a complaint."""
        before = len(self.complaints)
        resolved = self.resolve(annotation, owner, where, what)
        if len(self.complaints) > before:
            return str
        if resolved not in KEY_SCALARS:
            self.complaints.append(
                f"{where}: {what}: {name_of(resolved)} cannot be a key; a key is hashable and never changes: "
                "str, int, UUID, date or datetime"
            )
            return str
        return resolved

    def signature(self, name: str, function: Callable[..., Any], *, method: bool) -> Signature:
        """Describe a method (its first parameter is the entity) or a function."""
        plain = inspect.unwrap(function)
        where = where_of(plain)
        self.check_sync(name, plain)
        shape = inspect.signature(plain)
        parameters = list(shape.parameters.values())
        if method and not parameters:
            self.complaints.append(f"{where}: {name} takes no parameter; the first one is `self`")
        resolved = []
        for one in parameters[1 if method else 0 :]:
            what = f"{name}({one.name})"
            annotation = self._annotation(one.annotation, plain, where, what)
            self._check_default(one.default, annotation, where, what)
            resolved.append(one.replace(annotation=annotation))
        returns = self._annotation(shape.return_annotation, plain, where, f"{name} ->")
        return Signature(name, function, resolved, returns, where)

    def check_sync(self, name: str, function: Callable[..., Any]) -> None:
        """Complain of a function that is `async`."""
        plain = inspect.unwrap(function)
        if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
            self.complaints.append(
                f"{where_of(plain)}: {name} is async; "
                "handlers are ordinary functions, and nothing waits"
            )

    def _annotation(self, annotation: Any, owner: Any, where: str, what: str) -> Any:
        if annotation is inspect.Parameter.empty:
            return Any
        return self.resolve(annotation, owner, where, what)

    def _check_default(self, default: Any, annotation: Any, where: str, what: str) -> None:
        """Complain of a parameter's default that does not fit, or that calls would share."""
        if default is inspect.Parameter.empty:
            return
        if isinstance(default, _MUTABLE):
            kind = type(default).__name__
            self.complaints.append(
                f"{where}: {what}: all calls would share the default {kind}; use None"
            )
        else:
            complaint = default_complaint(default, annotation)
            self.complaints += [f"{where}: {what}: {complaint}"] if complaint else []


def default_complaint(default: Any, annotation: Any) -> str | None:
    """Say why a default does not fit its annotation; None when it does."""
    if annotation is Any:
        return None
    try:
        lower = lower_of(annotation)
        data = msgspec.msgpack.encode(lower(default) if lower else default, enc_hook=refuse)
        stored = msgspec.msgpack.decode(data, type=annotation, dec_hook=decode_reference)
    except (msgspec.ValidationError, Unencodable, TypeError, ValueError, OverflowError) as error:
        return f"the default does not fit: {error}"
    return None if alike(default, stored) else f"the default does not fit: {default!r}"
