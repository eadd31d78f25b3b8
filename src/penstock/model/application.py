"""`App`: entity classes and functions that run together, checked as a whole.

Building an application resolves every annotation and reports everything wrong in one
`DefinitionError`. A built application is immutable: it is the meaning of its requests.
"""

import decimal
import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from inspect import Parameter
from typing import Any, Final

from penstock.base.ids import EntityKey, fingerprint_of
from penstock.base.schema import reference_type
from penstock.errors import DefinitionError, RequestError, Unencodable
from penstock.model.declaration import CREATIONS, RESERVED, Declaration, where_of
from penstock.model.entity import declaration_of, is_intact
from penstock.model.entity_type import EntityType
from penstock.model.request import Request, encode_request
from penstock.model.resolver import Resolver, default_complaint
from penstock.model.route import routes_of
from penstock.model.shape import Shape
from penstock.model.signature import Signature

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


class App:
    """An application: `App("shop", User, Item, some_function)`.

    Attributes:
        name: Identifies the application in its journal.
        context: The context variables as they were when it was built; handlers begin with these.
        entities: Class name to description.
        functions: Name to signature of the functions that requests may call.
        routes: The paths of its own, as `@route` maps them.
        shapes: How each class is stored, by its name.
    """

    def __init__(self, name: str, *members: type | Callable[..., Any]) -> None:
        """Check the members and bind them together.

        Raises:
            DefinitionError: Something is wrong; carries every complaint with file and line.
        """
        self.name = name
        self.entities: dict[str, EntityType] = {}
        self.functions: dict[str, Signature] = {}
        complaints: list[str] = []
        if not _NAME.fullmatch(name):
            complaints.append(f"{name!r} cannot name an application: letters, digits, - and _ only")
        classes, functions = _sort_out(members, complaints)
        resolver = Resolver(name, classes)
        for cls in classes.values():
            self._add_entity(cls, resolver, complaints)
        for label, function in functions.items():
            self.functions[label] = resolver.signature(label, function, method=False)
        complaints += resolver.complaints
        self.routes = routes_of(self.entities, self.functions, complaints)
        if complaints:
            raise DefinitionError(list(dict.fromkeys(complaints)))
        for kind in self.entities.values():
            kind.settle()
        self.shapes: dict[str, Shape] = {one.name: one.shape for one in self.entities.values()}
        self.context = copy_context()
        chosen = decimal.getcontext().copy()
        chosen.clear_flags()
        self.context.run(decimal.setcontext, chosen)

    def _add_entity(self, cls: type, resolver: Resolver, complaints: list[str]) -> None:
        declaration = declaration_of(cls)
        kind: EntityType = cls.__reference__  # type: ignore[attr-defined]
        complaints += declaration.complaints
        if not is_intact(cls):
            complaints.append(
                f"{kind.where}: {kind.name} was changed by a decorator above @entity; "
                "@entity comes last, on top"
            )
        self.entities[kind.name] = kind
        annotations = {name: (annotation, owner) for name, annotation, owner in declaration.sources}
        key_source = annotations.pop(kind.key_name, None)
        key_annotation: Any = str
        if key_source is not None:
            what = f"{kind.name}.{kind.key_name}"
            key_annotation = resolver.key(*key_source, kind.where, what)
        attributes = {
            name: resolver.resolve(annotation, owner, kind.where, f"{kind.name}.{name}")
            for name, (annotation, owner) in annotations.items()
        }
        for name in sorted(attributes):
            if name in RESERVED:
                complaints.append(
                    f"{kind.where}: {kind.name}.{name} clashes with what every entity has"
                )
            if name.startswith("__"):
                complaints.append(f"{kind.where}: {kind.name}.{name}: Python keeps such names")
        kind.bind(key_annotation, attributes)
        kind.methods = _methods_of(kind, resolver)
        for name in sorted(kind.methods.keys() & attributes.keys()):
            complaints.append(f"{kind.where}: {kind.name}.{name} is a method and an attribute")
        kind.creation = _creation(kind, declaration, resolver)
        for name, default in kind.defaults.items():
            complaint = default_complaint(default, attributes.get(name, Any))
            complaints += [f"{kind.where}: {kind.name}.{name}: {complaint}"] if complaint else []

    def request(
        self,
        entity: str,
        key: object,
        method: str,
        positional: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
    ) -> tuple[bytes, bytes]:
        """Encode a request: the body and the `touches` of its log entry.

        Args:
            entity: The class's name; empty for a function.
            key: The entity's key, None where a creation shall derive it.
            method: The method's or function's name, or `create`, `upsert`, `delete`, `exists`.
            positional: Arguments by position.
            named: Arguments by name.

        Raises:
            RequestError: There is no such thing to call, or the arguments do not fit.
        """
        signature = self.signature(entity, method)
        named = self._with_key(entity, key, signature, positional, named or {})
        arguments = signature.encode(positional, named)
        text = None
        touched = signature.fingerprints(positional, named)
        if entity and key is not None:
            kind = self.entities[entity]
            try:
                text = kind.text_of(key) if isinstance(key, kind.cls) else kind.key_text(key)
            except Unencodable as error:
                raise RequestError(f"{entity}: {error}") from error
            touched.insert(0, fingerprint_of(EntityKey(kind.prefix + text)))
        elif entity and method not in CREATIONS:
            raise RequestError(f"{entity}.{method} needs a key")
        body = encode_request(Request(entity, text, method, *arguments))
        return body, b"".join(one.to_bytes(8, "little") for one in touched)

    def _with_key(
        self,
        entity: str,
        key: object,
        signature: Signature,
        positional: Sequence[Any],
        named: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        """Hand the key to an `__init__` that takes it, where the arguments do not hold it."""
        kind = self.entities.get(entity)
        if kind is None or kind.initializer is None or key is None:
            return named
        if signature is not kind.creation or kind.key_name in named:
            return named
        taken = list(signature.parameters)[: len(positional)]
        if kind.key_name not in signature.parameters or kind.key_name in taken:
            return named
        return {**named, kind.key_name: key}

    def key_of(self, entity: str, text: str) -> object:
        """Return the key that a word of a path or a command line means.

        Raises:
            RequestError: There is no such class, or the text is none of its keys.
        """
        kind = self.entities.get(entity)
        if kind is None:
            raise RequestError(_unknown("entity class", entity, self.entities))
        try:
            key: object = kind.key_at(text)
        except (Unencodable, ValueError) as error:
            raise RequestError(f"{entity}: {text!r} is no key: {error}") from error
        return key

    def signature(self, entity: str, method: str) -> Signature:
        """Return what a request calls.

        Raises:
            RequestError: There is nothing of that name; near misses are named.
        """
        if not entity:
            if method in self.functions:
                return self.functions[method]
            raise RequestError(_unknown("function", method, self.functions))
        kind = self.entities.get(entity)
        if kind is None:
            raise RequestError(_unknown("entity class", entity, self.entities))
        if method in kind.methods:
            return kind.methods[method]
        if method in CREATIONS and kind.creation is not None:
            return kind.creation
        if method in RESERVED:
            return _NO_ARGUMENTS[method]
        raise RequestError(_unknown(f"method of {entity}", method, [*kind.methods, *RESERVED]))


def _sort_out(
    members: Sequence[type | Callable[..., Any]], complaints: list[str]
) -> tuple[dict[str, type], dict[str, Callable[..., Any]]]:
    """Part an application's members into entity classes and functions, by name."""
    classes: dict[str, type] = {}
    functions: dict[str, Callable[..., Any]] = {}
    taken: dict[str, Any] = {}
    for member in members:
        label = getattr(member, "__name__", repr(member))
        if label in taken and taken[label] is not member:
            complaints.append(
                f"{where_of(member)}: the name {label} is taken by {where_of(taken[label])}"
            )
            continue
        taken[label] = member
        if isinstance(member, type) and reference_type(member) is not None:
            classes[label] = member
        elif inspect.isfunction(member) and hasattr(member, "__transactional__"):
            functions[label] = member
        else:
            complaints.append(
                f"{where_of(member)}: {label} is neither an @entity class "
                "nor a @transactional function"
            )
    return classes, functions


def _methods_of(kind: EntityType, resolver: Resolver) -> dict[str, Signature]:
    """Describe what requests may call; private methods are checked for being synchronous only."""
    found: dict[str, Signature] = {}
    for name, function in inspect.getmembers_static(kind.cls, inspect.isfunction):
        if name in RESERVED or (name.startswith("__") and name.endswith("__")):
            continue
        label = f"{kind.name}.{name}"
        if name.startswith("_"):
            resolver.check_sync(label, function)
        else:
            found[name] = resolver.signature(label, function, method=True)
    return found


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else f"; there are {', '.join(names)}"
    return f"there is no {what} {name!r}{hint}"


def _creation(kind: EntityType, declaration: Declaration, resolver: Resolver) -> Signature:
    """Describe what `create` takes: what `__init__` takes, or the key and named attributes."""
    name = f"{kind.name}.create"
    if declaration.initializer is not None:
        return resolver.signature(name, declaration.initializer, method=True)
    parameters = [
        Parameter(
            kind.key_name or "key",
            Parameter.POSITIONAL_OR_KEYWORD,
            annotation=kind.key_annotation,
            default=None,  # derived from the request
        )
    ]
    parameters += [
        Parameter(
            attribute,
            Parameter.KEYWORD_ONLY,
            annotation=annotation,
            default=kind.defaults.get(attribute, Parameter.empty),
        )
        for attribute, annotation in kind.attributes.items()
    ]
    return Signature(name, kind.cls.create, parameters, Any, kind.where)  # type: ignore[attr-defined]


def _exists_at(reference: Any) -> bool:
    return bool(type(reference).exists(reference))


_NO_ARGUMENTS: Final = {
    "delete": Signature("delete", lambda reference: reference.delete(), [], type(None), "penstock"),
    "exists": Signature("exists", _exists_at, [], bool, "penstock"),
}
