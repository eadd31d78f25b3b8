"""What an entity class declares, found from its annotations, its `__init__` and its `__key__`.

Both styles end in the same lists: the key's attribute, the attributes with their annotations, the
defaults, the methods. Everything wrong is collected as a complaint with file and line; nothing is
raised here, so that a developer hears of all of it at once.
"""

import ast
import inspect
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from penstock.base.schema import KEY_SCALARS, complaints_of
from penstock.model.signature import Signature

RESERVED: Final = frozenset({"create", "delete", "exists"})
FORBIDDEN: Final = (
    "__slots__",
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
    lineage = [one for one in reversed(cls.__mro__) if one is not object]
    for one in lineage:
        if one is not cls and "__reference__" in vars(one):
            found.complaints.append(
                f"{where}: {cls.__name__} inherits from the entity {one.__name__}; "
                "share code through a plain class instead"
            )
        for name in FORBIDDEN:
            if name in vars(one) and not (name == "__hash__" and vars(one)[name] is None):
                found.complaints.append(f"{where}: {cls.__name__} must not define {name}")
        for name in RESERVED & vars(one).keys():
            found.complaints.append(
                f"{where}: {cls.__name__}.{name} clashes with what every entity has"
            )
        _declare_annotations(found, one)
    initializer = cls.__init__
    if inspect.isfunction(initializer):
        found.initializer = initializer
        for one in lineage:
            if inspect.isfunction(vars(one).get("__init__")):
                _declare_assignments(found, one, vars(one)["__init__"])
    _find_key(found, cls, where)
    return found


def _declare_annotations(found: Declaration, owner: type) -> None:
    for name, annotation in vars(owner).get("__annotations__", {}).items():
        if typing.get_origin(annotation) is ClassVar or annotation is ClassVar:
            continue
        if isinstance(annotation, str) and annotation.removeprefix("typing.").startswith("ClassVar"):
            continue
        _declare_attribute(found, name, annotation, owner)
        default = vars(owner).get(name, inspect.Parameter.empty)
        if isinstance(default, KeyMarker):
            found.key_name = name
        elif default is not inspect.Parameter.empty:
            found.defaults[name] = default


def _declare_attribute(found: Declaration, name: str, annotation: Any, owner: type) -> None:
    found.sources = [source for source in found.sources if source[0] != name]
    found.sources.append((name, annotation, owner))


def _parse(function: Callable[..., Any]) -> ast.FunctionDef | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    return next((node for node in tree.body if isinstance(node, ast.FunctionDef)), None)


def _assignments(tree: ast.FunctionDef) -> Iterator[tuple[str, ast.expr | None, ast.expr | None]]:
    """Yield (attribute, annotation, value) of every assignment to `self.…`."""
    this = tree.args.args[0].arg if tree.args.args else "self"
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(
                target=ast.Attribute(value=ast.Name(id=owner), attr=name),
                annotation=annotation,
                value=value,
            ) if owner == this:
                yield name, annotation, value
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    match target:
                        case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == this:
                            yield name, None, value


def _declare_assignments(
    found: Declaration, owner: type, initializer: Callable[..., None]
) -> None:
    where = where_of(initializer)
    tree = _parse(initializer)
    if tree is None:
        found.complaints.append(f"{where}: the source of {owner.__name__}.__init__ is not readable")
        return
    parameters = inspect.signature(initializer).parameters
    for name, annotation, value in _assignments(tree):
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
            case _ if not known:
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
    match tree.body[-1] if tree else None:
        case ast.Return(value=ast.Attribute(value=ast.Name(), attr=attribute)):
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

    def __init__(self, entities: Mapping[str, type]) -> None:
        self._entities = entities
        self.complaints: list[str] = []

    def resolve(self, annotation: Any, owner: Any, where: str, what: str) -> Any:
        """Return the type that an annotation names, `Any` after a complaint."""
        if annotation is None:
            return type(None)
        module = inspect.getmodule(owner)
        names = {**self._entities, **(vars(module) if module else {})}
        names.update(getattr(owner, "__globals__", {}))
        if isinstance(owner, type):
            names[owner.__name__] = owner
        try:
            carrier = type("Carrier", (), {"__annotations__": {"it": annotation}})
            resolved = typing.get_type_hints(carrier, names, dict(self._entities))["it"]
        except NameError as error:
            self.complaints.append(f"{where}: {what}: unknown type {error.name!r}")
            return Any
        except (SyntaxError, TypeError, AttributeError) as error:
            self.complaints.append(f"{where}: {what}: {annotation!r} is no type ({error})")
            return Any
        for complaint in complaints_of(resolved):
            self.complaints.append(f"{where}: {what}: {complaint}")
            return Any
        return resolved

    def key(self, annotation: Any, owner: type, where: str, what: str) -> Any:
        """Return the type of a key, `str` after a complaint."""
        before = len(self.complaints)
        resolved = self.resolve(annotation, owner, where, what)
        if len(self.complaints) > before:
            return str
        if resolved not in KEY_SCALARS:
            named = getattr(resolved, "__name__", str(resolved))
            self.complaints.append(
                f"{where}: {what}: {named} cannot be a key; a key is hashable and never changes: "
                "str, int, UUID, date or datetime"
            )
            return str
        return resolved

    def signature(self, name: str, function: Callable[..., Any], *, method: bool) -> Signature:
        """Describe a method (its first parameter is the entity) or a function."""
        plain = inspect.unwrap(function)
        where = where_of(plain)
        if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
            self.complaints.append(
                f"{where}: {name} is async; handlers are ordinary functions, and nothing waits"
            )
        shape = inspect.signature(plain)
        parameters = list(shape.parameters.values())[1 if method else 0 :]
        resolved = [
            one.replace(annotation=self._annotation(one.annotation, plain, where, f"{name}({one.name})"))
            for one in parameters
        ]
        returns = self._annotation(shape.return_annotation, plain, where, f"{name} ->")
        return Signature(name, function, resolved, returns, where)

    def _annotation(self, annotation: Any, owner: Any, where: str, what: str) -> Any:
        if annotation is inspect.Parameter.empty:
            return Any
        return self.resolve(annotation, owner, where, what)
