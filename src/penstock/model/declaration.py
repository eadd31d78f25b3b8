"""The declaration of an entity class, read from its annotations, its `__init__` and its `__key__`.

Both styles give the same result: the key's attribute, the attributes with their annotations, and the
defaults. Mistakes are collected as complaints with file and line instead of raised, so that a developer
sees all of them together.
"""

import ast
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import MISSING, Field
from typing import Any, ClassVar, Final

import msgspec

from penstock.base.annotations import annotations_of, signature_of
from penstock.base.syntax import parse, place_of_class
from penstock.model.attribute import (
    DeclaredIndex,
    DefaultFactory,
    FormerName,
    ReferenceMarker,
    UniqueMarker,
)

_UNCALLED: Final = {
    ("key", "penstock.model.entity"): "()",
    ("unique", "penstock.model.index"): "()",
    ("reference", "penstock.model.attribute"): "(exists=True)",
    ("was", "penstock.model.attribute"): "('former_name')",
}
"""The functions that mark an attribute, by their names and modules, with their usual arguments."""


class Creation(msgspec.Struct, frozen=True):
    """A method of every class that makes an entity; all that code of Penstock must know of it, except how it does that.

    Attributes:
        summary: The work, as the beginning of a sentence that the class ends.
        details: Further sentences for callers.
        keeps: Whether attributes without an argument keep their values. It takes the key and attributes by name, also for
            a class with an `__init__`.
        includes: The creations whose work it can do. If a class closes any of them to callers, it closes this creation, too.
    """

    summary: str
    details: str = ""
    keeps: bool = False
    includes: tuple[str, ...] = ()


CREATIONS: Final = {
    "create": Creation("Create"),
    "upsert": Creation("Create or replace"),
    "update_or_create": Creation(
        "Update or create",
        "An existing entity keeps the attributes that the call does not name, and a new entity gets their defaults.",
        keeps=True,
        includes=("create", "upsert"),
    ),
}
"""The methods that make an entity: `create` refuses a key that is taken, `upsert` replaces all attributes of the entity there,
and `update_or_create` changes those that it names."""

RESERVED: Final = tuple(sorted((*CREATIONS, "delete", "exists")))
OTHER_NAME: Final = "give it another name"
"""The remedy for a name in `RESERVED`."""
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


_MEMBERS: Final = (property, classmethod, staticmethod, DeclaredIndex)

CLASS_NAME_BYTES_MAX: Final = 100
_CLASS_VARIABLE: Final = re.compile(r"(\w+\.)*ClassVar\b")


class KeyMarker:
    """The value of `key()`, which marks the attribute that identifies an entity."""


_MARKERS: Final = (FormerName, KeyMarker, ReferenceMarker, UniqueMarker)


class Declaration(msgspec.Struct):
    """The declaration of a class, read when it is defined; its annotations are not resolved yet.

    Attributes:
        sources: The name, the annotation and the class of each attribute.
        assigned: The literals that `__init__` assigns, by attribute.
        plain_fields: The attributes that are written as `field()` and the like.
        internal: Names of `RESERVED`; None: the whole class.
    """

    key_name: str = ""
    sources: list[tuple[str, Any, type]] = msgspec.field(default_factory=list)
    defaults: dict[str, Any] = msgspec.field(default_factory=dict)
    must_exist: list[str] = msgspec.field(default_factory=list)
    indexes: dict[str, DeclaredIndex] = msgspec.field(default_factory=dict)
    former_names: dict[str, str] = msgspec.field(default_factory=dict)
    assigned: dict[str, Any] = msgspec.field(default_factory=dict)
    plain_fields: list[str] = msgspec.field(default_factory=list)
    initializer: Callable[..., None] | None = None
    internal: frozenset[str] | None = frozenset()
    complaints: list[str] = msgspec.field(default_factory=list)


def where_of(thing: Any) -> str:
    """Return `file:line` of a class or function."""
    code = getattr(inspect.unwrap(thing), "__code__", None) if callable(thing) else None
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    try:
        file, line = place_of_class(thing)
    except (OSError, TypeError, SyntaxError):
        return f"{getattr(thing, '__module__', '?')}:?"
    return f"{file}:{line}"


def caller_place() -> str:
    """Return `file:line` of the caller of the function that calls this function."""
    frame = sys._getframe(2)  # noqa: SLF001 -- the documented way to the place of a call
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def declare(cls: type, was: str = "") -> Declaration:
    """Read the declaration of an entity class, which may have had another name before."""
    declaration = Declaration()
    where = where_of(cls)
    if not 0 < len(cls.__name__.encode()) <= CLASS_NAME_BYTES_MAX:
        declaration.complaints.append(
            f"{where}: the name of an entity class takes at most {CLASS_NAME_BYTES_MAX} bytes"
        )
    given: object = was
    if not isinstance(given, str) or (
        given and (not given.isidentifier() or len(given.encode()) > CLASS_NAME_BYTES_MAX)
    ):
        declaration.complaints.append(
            f"{where}: {cls.__name__}: was={was!r} needs the former name of the class"
        )
    lineage = [owner for owner in reversed(cls.__mro__) if owner is not object]
    for owner in lineage:
        _complain_of_names(declaration, cls, owner, where)
        _declare_annotations(declaration, owner)
    for owner in lineage:
        initializer = vars(owner).get("__init__")
        if inspect.isfunction(initializer) and initializer.__module__ != "typing":  # a Protocol's
            declaration.initializer = initializer
            _declare_assignments(declaration, owner, initializer)
    _declare_indexes(declaration, lineage)
    _find_key(declaration, cls, where)
    _complain_of_former_names(declaration, cls, where)
    return declaration


def _complain_of_names(declaration: Declaration, cls: type, owner: type, where: str) -> None:
    """Complain of names that an entity class and its bases must not define."""
    names = vars(owner)
    if owner is not cls and "__reference__" in names:
        declaration.complaints.append(
            f"{where}: {cls.__name__} inherits from the entity {owner.__name__}; "
            "share code through a plain class instead"
        )
        return
    forbidden = [name for name in FORBIDDEN if name in names and names[name] is not None]
    if names.get("__slots__"):  # empty ones, as of ABC and Generic, do no harm
        forbidden.append("__slots__")
    for name in forbidden:
        declaration.complaints.append(f"{where}: {cls.__name__} must not define {name}")
    for name in [reserved for reserved in RESERVED if reserved in names]:
        declaration.complaints.append(
            f"{where}: {cls.__name__}.{name} clashes with a method of every entity; {OTHER_NAME}"
        )


def _declare_annotations(declaration: Declaration, owner: type) -> None:
    if "__reference__" in vars(owner):  # `_complain_of_names` has reported it
        return
    annotations = annotations_of(owner)
    for name, member in vars(owner).items():
        if isinstance(member, _MARKERS) and name not in annotations:
            declaration.complaints.append(
                f"{where_of(owner)}: {owner.__name__}.{name} is marked, and has no type; write one, as in {name}: str = …"
            )
    for name, annotation in annotations.items():
        if typing.get_origin(annotation) is ClassVar or annotation is ClassVar:
            continue
        if isinstance(annotation, str) and _CLASS_VARIABLE.match(annotation):
            continue
        _declare_attribute(declaration, name, annotation, owner)
        if name in vars(owner):
            _declare_default(declaration, name, vars(owner)[name], owner)


def _declare_default(declaration: Declaration, name: str, default: Any, owner: type) -> None:
    """Declare what stands in the place of an attribute's default."""
    match default:
        case KeyMarker():
            _declare_key(declaration, name, owner)
        case FormerName():
            declaration.former_names[name] = default.name
            _declare_inner_default(declaration, name, default.default, owner)
        case ReferenceMarker():
            if default.exists:
                declaration.must_exist.append(name)
            _declare_inner_default(declaration, name, default.default, owner)
        case UniqueMarker():
            _declare_unique(declaration, name, default, owner)
        case Field():
            _declare_field(declaration, name, default, owner)
        case _ if isinstance(default, _MEMBERS) or inspect.isroutine(default):
            _complain_of_member(declaration, name, owner)
        case _:
            declaration.defaults[name] = deepcopy(default)


def _declare_key(declaration: Declaration, name: str, owner: type) -> None:
    if declaration.key_name not in ("", name):
        declaration.complaints.append(
            f"{where_of(owner)}: {owner.__name__} marks two keys, "
            f"{declaration.key_name} and {name}; an entity has one"
        )
    declaration.key_name = name


def _declare_indexes(declaration: Declaration, lineage: Sequence[type]) -> None:
    """Declare the indexes that a class and its bases name."""
    for owner in lineage:
        for name, member in vars(owner).items():
            if isinstance(member, DeclaredIndex):
                declaration.indexes[name] = member


def _declare_unique(declaration: Declaration, name: str, marker: UniqueMarker, owner: type) -> None:
    """Declare an attribute with `unique()`, and the index that it makes."""
    made = f"by_{name}"
    if made in vars(owner):
        declaration.complaints.append(
            f"{marker.where}: {owner.__name__}.{made} is taken, and unique() makes an index of this name; rename it"
        )
    declaration.indexes[made] = DeclaredIndex((name,), None, is_unique=True, where=marker.where)
    _declare_inner_default(declaration, name, marker.default, owner)


def _declare_inner_default(declaration: Declaration, name: str, default: Any, owner: type) -> None:
    """Declare the default inside of `was(…)`, `reference(…)` or `unique(…)`, if there is one."""
    if default is MISSING:
        declaration.plain_fields.append(name)
    else:
        _declare_default(declaration, name, default, owner)


def _complain_of_member(declaration: Declaration, name: str, owner: type) -> None:
    member = vars(owner)[name]
    marker = getattr(member, "__name__", "")
    if (call := _UNCALLED.get((marker, getattr(member, "__module__", "")))) is not None:
        declaration.complaints.append(
            f"{where_of(owner)}: {owner.__name__}.{name} = {marker} lacks parentheses: {marker}{call}"
        )
        declaration.plain_fields.append(name)
        if marker == "key":
            _declare_key(declaration, name, owner)
        return
    is_index = isinstance(member, DeclaredIndex)
    what = (
        "index and an attribute; write it without a type" if is_index else "method and an attribute"
    )
    declaration.complaints.append(
        f"{where_of(owner)}: {owner.__name__}.{name} is {'an' if is_index else 'a'} {what}"
    )


def _declare_field(declaration: Declaration, name: str, default: "Field[Any]", owner: type) -> None:
    """Declare the default of an attribute that is written as `field(…)` of dataclasses."""
    if default.default_factory is not MISSING:
        declaration.defaults[name] = DefaultFactory(default.default_factory)
    elif default.default is not MISSING:
        declaration.defaults[name] = deepcopy(default.default)
    else:
        declaration.plain_fields.append(name)
    if not default.init:
        declaration.complaints.append(
            f"{where_of(owner)}: {owner.__name__}.{name}: field(init=False) has no meaning in an entity; "
            "give the attribute a default"
        )


def _declare_attribute(declaration: Declaration, name: str, annotation: Any, owner: type) -> None:
    declaration.sources = [source for source in declaration.sources if source[0] != name]
    declaration.sources.append((name, annotation, owner))


def _parse(function: Callable[..., Any]) -> ast.FunctionDef | None:
    try:
        tree = parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    return next((node for node in tree.body if isinstance(node, ast.FunctionDef)), None)


def _assignments(
    tree: ast.FunctionDef, owner: str
) -> Iterator[tuple[str, ast.expr | None, ast.expr | None]]:
    """Yield (attribute, annotation, value) of every assignment to `self.…`."""
    parameters = [*tree.args.posonlyargs, *tree.args.args]
    this = parameters[0].arg if parameters else "self"
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign():
                for name in _attributes_in(node.target, this, owner):
                    yield name, node.annotation, node.value
            case ast.Assign():
                for target in node.targets:
                    unpacked = isinstance(target, ast.Tuple | ast.List)
                    for name in _attributes_in(target, this, owner):
                        yield name, None, None if unpacked else node.value
            case _:
                pass


def _attributes_in(target: ast.expr, this: str, owner: str) -> Iterator[str]:
    """Yield the attributes that an assignment sets; a private name is mangled as Python does it."""
    for part in ast.walk(target):
        match part:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute, ctx=ast.Store()) if (
                name == this
            ):
                hidden = attribute.startswith("__") and not attribute.endswith("__")
                yield f"_{owner.lstrip('_')}{attribute}" if hidden else attribute
            case _:
                pass


def _declare_assignments(
    declaration: Declaration, owner: type, initializer: Callable[..., None]
) -> None:
    where = where_of(initializer)
    tree = _parse(initializer)
    if tree is None:
        declaration.complaints.append(
            f"{where}: the source of {owner.__name__}.__init__ is not readable"
        )
        return
    parameters = signature_of(initializer).parameters
    for name, annotation, value in _assignments(tree, owner.__name__):
        _note_literal(declaration, name, value, parameters)
        known = any(source[0] == name for source in declaration.sources)
        match annotation, value:
            case ast.expr(), _:
                _declare_attribute(declaration, name, ast.unparse(annotation), owner)
            case None, ast.Name(id=parameter) if (
                not known
                and parameter in parameters
                and parameters[parameter].annotation is not inspect.Parameter.empty
            ):
                _declare_attribute(declaration, name, parameters[parameter].annotation, owner)
            case None, ast.Constant(value=constant) if not known and constant is not None:
                _declare_attribute(declaration, name, type(constant), owner)
            case _ if known:
                pass
            case _:
                declaration.complaints.append(
                    f"{where}: {owner.__name__}.{name} has no annotation; "
                    f"write `self.{name}: … = …`"
                )


def _note_literal(
    declaration: Declaration,
    name: str,
    value: ast.expr | None,
    parameters: Mapping[str, inspect.Parameter],
) -> None:
    """Note the value that `__init__` gives to an attribute without an argument, if the source shows it."""
    match value:
        case ast.Name(id=parameter) if parameter in parameters:
            default = parameters[parameter].default
            if default is not inspect.Parameter.empty:
                declaration.assigned[name] = default
        case ast.expr():
            with suppress(ValueError, TypeError, SyntaxError):
                declaration.assigned[name] = ast.literal_eval(value)
        case None:
            pass


def _find_key(declaration: Declaration, cls: type, where: str) -> None:
    keyed = getattr(cls, "__key__", None)
    name = cls.__name__
    if keyed is None and not declaration.key_name:
        declaration.complaints.append(
            f"{where}: {name} has no key; mark an attribute with `= key()`, or define `__key__`"
        )
        return
    if keyed is None:
        if declaration.initializer is not None:
            declaration.complaints.append(
                f"{where}: {name} has both key() and __init__; use key() alone, "
                "or __init__ with __key__"
            )
        return
    if declaration.key_name:
        declaration.complaints.append(f"{where}: {name} has both key() and __key__; use one")
        return
    tree = _parse(keyed)
    body = tree.body if tree else []
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]  # a docstring
    match body:
        case [ast.Return(value=ast.Attribute(value=ast.Name(), attr=attribute))]:
            declaration.key_name = attribute
        case _:
            declaration.complaints.append(
                f"{where_of(keyed)}: {name}.__key__ must be `return self.<attribute>`"
            )
            return
    if all(source[0] != declaration.key_name for source in declaration.sources):
        declaration.complaints.append(
            f"{where_of(keyed)}: {name}.__key__ returns {declaration.key_name}, which is not an attribute"
        )


def _complain_of_former_names(declaration: Declaration, cls: type, where: str) -> None:
    """Complain of `was(…)` without a name, and of attributes that exchange their names.

    A stored row does not say whether an exchange has been made, so it needs two deployments.
    """
    names = declaration.former_names
    for name, former in names.items():
        if type(former) is not str:
            declaration.complaints.append(
                f"{where}: {cls.__name__}.{name}: was({former!r}) needs the former name of the attribute, a str"
            )
            names[name] = ""
    for name in names:
        seen = [name]
        while names.get(seen[-1], "") not in ("", *seen):
            seen.append(names[seen[-1]])
        if names.get(seen[-1]) == name and name == min(seen):
            declaration.complaints.append(
                f"{where}: {cls.__name__}: was(…) of {', '.join(seen)} form a circle; rename one attribute to a name "
                "that was never used, deploy, and rename the others then"
            )
