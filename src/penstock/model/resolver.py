"""`Resolver` turns written annotations into types when an application is built.

Names are resolved then, because all entity classes are known then. Like `declaration`, the resolver
collects complaints with file and line instead of raising errors.
"""

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from penstock.base.annotations import annotations_of, evaluate, signature_of
from penstock.base.constraint import constraint_complaints, has_constraints
from penstock.base.key_text import is_key_type, unfit_part
from penstock.base.lowering import alike, changed_part, lower_of
from penstock.base.record import (
    RecordKind,
    bind,
    is_frozen,
    kind_of,
    members_of,
    simplified,
    variables_of,
)
from penstock.base.schema import (
    complaints_of,
    decode_reference,
    entities_in,
    name_of,
    refuse,
)
from penstock.base.stored_type import records_have_constraints
from penstock.errors import Unencodable
from penstock.model.attribute import DefaultFactory
from penstock.model.declaration import where_of
from penstock.model.entity_type import EntityType
from penstock.model.signature import Signature, with_checked_result

_MUTABLE: Final = (list, dict, set, bytearray, deque)


class Resolver:
    """Turns the annotations of an application into types, and collects complaints.

    Args:
        interfaces: The classes that stand for entity classes of other applications.
    """

    def __init__(
        self, app: str, entities: Mapping[str, type], interfaces: Iterable[type] = ()
    ) -> None:
        self._app = app
        self._entities = entities
        self._classes = [*entities.values(), *interfaces]
        self.complaints: list[str] = []

    def knows(self, cls: type) -> bool:
        """Say whether an entity class is part of the application, or stands for one of another application."""
        return cls in self._classes

    def check_method(self, where: str, method: Any) -> None:
        """Complain of a call of a method or a creation that belongs to no entity class of the application."""
        name = getattr(method, "__name__", "")
        owner = getattr(method, "__self__", None)
        if isinstance(owner, type):
            class_name, is_known = owner.__name__, owner in self._classes
        else:
            path = getattr(method, "__qualname__", "").rpartition("<locals>.")[2]
            class_name = path.rpartition(".")[0]
            function = getattr(method, "__func__", method)  # of a method of a reference
            is_known = any(
                inspect.getattr_static(cls, name, None) is function for cls in self._classes
            )
        if class_name and not is_known:
            self.complaints.append(
                f"{where}: call of {class_name}.{name}: {class_name} is not part of the application "
                f"{self._app}; name it there"
            )

    def resolve(
        self,
        annotation: Any,
        owner: Any,
        where: str,
        what: str,
        entity: type | None = None,
        *,
        cls: type | None = None,
    ) -> Any:
        """Return the type that an annotation names, with its constraints; `Any` after a complaint.

        Args:
            annotation: The annotation as it is written, text or object.
            owner: The class or function that has the annotation.
            where: `file:line`, for a complaint.
            what: The name of the attribute or parameter, for a complaint.
            entity: The class that `Self` stands for.
            cls: The class that inherits the annotation, and gives the type variables of its bases their types.
        """
        if annotation is None:
            return type(None)
        cls = cls or entity
        try:
            hint = self._evaluated({"it": annotation}, owner, cls)["it"]
            resolved = simplified(hint, entity, constrained=True)
        except RecursionError:
            self.complaints.append(
                f"{where}: {what}: a type alias contains itself; use a dataclass"
            )
            return Any
        except NameError as error:
            self.complaints.append(f"{where}: {what}: unknown type {error.name!r}")
            return Any
        except (SyntaxError, TypeError, AttributeError) as error:
            self.complaints.append(f"{where}: {what}: {annotation!r} is not a type ({error})")
            return Any
        complaints = constraint_complaints(hint) or complaints_of(resolved)
        complaints = complaints or [
            f"the entity {each.__name__} is not part of the application {self._app}; name it there"
            for each in dict.fromkeys(entities_in(simplified(resolved)))
            if each not in self._classes
        ]
        self.complaints += [f"{where}: {what}: {complaint}" for complaint in complaints]
        return Any if complaints else resolved

    def _evaluated(
        self, annotations: Mapping[str, Any], owner: Any, cls: type | None
    ) -> dict[str, Any]:
        """Return the types that annotations of `owner` name, where `cls` is or inherits from it."""
        home = owner if isinstance(owner, type) else _home_of(owner, cls)
        names = self.names_at(owner) | _inner_types(home)
        for generic in (
            home,
            owner,
        ):  # PEP 695: their variables are known in their annotations only
            names |= {each.__name__: each for each in getattr(generic, "__type_params__", ())}
        hints = evaluate(annotations, names, include_extras=True)
        bound = variables_of(cls).get(home) if cls is not None else None
        if not bound:
            return hints
        # An argument may be a name in quotes, which the module of the inheriting class knows.
        bound_hints = {name: bind(hint, bound) for name, hint in hints.items()}
        return evaluate(bound_hints, self.names_at(cls), include_extras=True)

    def names_at(self, owner: Any) -> dict[str, Any]:
        """Return the names that annotations of `owner` can use.

        All modules know all entities of the application, so modules whose entities refer to each other
        need no import of each other at run time. The names of the module come first.
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

    def key(self, annotation: Any, owner: type, where: str, what: str, cls: type) -> Any:
        """Return the type of the key of a class, which may inherit it; `str` after a complaint."""
        before = len(self.complaints)
        resolved = self.resolve(annotation, owner, where, what, cls)
        if len(self.complaints) > before:
            return str
        if not is_key_type(simplified(resolved)):
            part = unfit_part(simplified(resolved))
            because = "" if part is None else f", because {name_of(part)} cannot be a part of one"
            self.complaints.append(
                f"{where}: {what}: {name_of(resolved)} cannot be a key{because}; a key is hashable and never changes: "
                "str, int, UUID, date, datetime, an Enum of str or int, a Literal, or a tuple of these"
            )
            return str
        return resolved

    def signature(
        self,
        name: str,
        function: Callable[..., Any],
        entity: type | None = None,
        *,
        is_effect: bool = False,
    ) -> Signature:
        """Describe a function, or a method of an entity class: its first parameter is the entity.

        An effect may be `async`, and the process that calls it checks its result.
        """
        plain = inspect.unwrap(function)
        where = where_of(plain)
        if not is_effect:
            self.check_sync(name, plain)
        called: Any = function.__wrapped__ if hasattr(function, "__readonly__") else function  # type: ignore[attr-defined]
        if inspect.isgeneratorfunction(called):
            self.complaints.append(
                f"{where}: {name} is a generator, which cannot be a reply; return a list, or let the name begin "
                "with _ if handlers alone use it"
            )
        shape = signature_of(plain)
        parameters = list(shape.parameters.values())
        if entity is not None and not parameters:
            self.complaints.append(f"{where}: {name} takes no parameter; the first one is `self`")
        resolved = []
        for parameter in parameters[0 if entity is None else 1 :]:
            what = f"{name}({parameter.name})"
            annotation = self._annotation(parameter.annotation, plain, where, what, entity)
            self._check_default(parameter.default, annotation, where, what)
            resolved.append(parameter.replace(annotation=annotation))
        returns = self._annotation(shape.return_annotation, plain, where, f"{name} ->", entity)
        if not is_effect and (
            has_constraints(returns) or records_have_constraints(simplified(returns))
        ):
            function = with_checked_result(name, function, returns)
        return Signature(name, function, resolved, returns, where)

    def hints(
        self, function: Callable[..., Any], what: str, cls: type | None = None
    ) -> dict[str, Any]:
        """Return the annotations of a function, or of a method that `cls` has, as objects; none after a complaint."""
        try:
            return self._evaluated(annotations_of(function), function, cls)
        except NameError as error:
            self.complaints.append(f"{where_of(function)}: {what}: unknown type {error.name!r}")
        except (SyntaxError, TypeError, AttributeError) as error:
            self.complaints.append(f"{where_of(function)}: {what}: a wrong annotation ({error})")
        return {}

    def check_sync(self, name: str, function: Callable[..., Any]) -> None:
        """Complain if a function is `async`."""
        plain = inspect.unwrap(function)
        if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
            self.complaints.append(
                f"{where_of(plain)}: {name} is async; "
                "handlers are ordinary functions, and nothing waits"
            )

    def _annotation(
        self, annotation: Any, owner: Any, where: str, what: str, entity: type | None
    ) -> Any:
        if annotation is inspect.Parameter.empty:
            return Any
        return self.resolve(annotation, owner, where, what, entity)

    def _check_default(self, default: Any, annotation: Any, where: str, what: str) -> None:
        """Complain if a parameter's default does not fit, or if calls would share it."""
        if default is inspect.Parameter.empty:
            return
        if is_changeable(default):
            is_open_record = kind_of(type(default)) is not None and not is_frozen(type(default))
            self.complaints.append(
                f"{where}: {what}: all calls would share the default {type(default).__name__}; "
                f"use None{', or frozen=True in its class' if is_open_record else ''}"
            )
        else:
            complaint = default_complaint(default, annotation)
            self.complaints += [f"{where}: {what}: {complaint}"] if complaint else []


def _home_of(function: Any, cls: type | None) -> type | None:
    """Return the class in the lineage of a class that defines a method."""
    for owner in () if cls is None else cls.__mro__:
        if any(
            inspect.isfunction(member) and inspect.unwrap(member) is function
            for member in vars(owner).values()
        ):
            return owner
    return None


def _inner_types(cls: type | None) -> dict[str, type]:
    """Return the classes that are defined inside of a class, by their names: annotations in its body can use them."""
    inside = {} if cls is None else vars(cls)
    return {name: value for name, value in inside.items() if isinstance(value, type)}


def is_changeable(value: Any) -> bool:
    """Say whether a handler could change a value, which all calls share."""
    if isinstance(value, tuple | frozenset):
        return any(map(is_changeable, value))
    record_kind = kind_of(type(value))
    if record_kind in (RecordKind.DATACLASS, RecordKind.STRUCT, RecordKind.PYDANTIC):
        inside = (getattr(value, member.name) for member in members_of(type(value)))
        return not is_frozen(type(value)) or any(map(is_changeable, inside))
    return isinstance(value, _MUTABLE)


def default_complaint(default: Any, annotation: Any) -> str | None:
    """Say why a default does not fit its annotation; None if it fits."""
    if annotation is Any:
        return None
    try:
        lower = lower_of(simplified(annotation))
        data = msgspec.msgpack.encode(lower(default) if lower else default, enc_hook=refuse)
        stored = msgspec.msgpack.decode(data, type=annotation, dec_hook=decode_reference)
    except (msgspec.ValidationError, Unencodable, TypeError, ValueError, OverflowError) as error:
        return f"the default does not fit: {error}"
    if alike(default, stored):
        return None
    path, change = changed_part(default, stored)
    return f"the default does not fit{path}: {name_of(annotation)} {change}"


def default_complaints(entity_type: EntityType) -> list[str]:
    """Return a complaint for each default that does not fit; factories are called only by `create`."""
    fixed = {
        name: default
        for name, default in entity_type.defaults.items()
        if not isinstance(default, DefaultFactory)
    }
    complaints = {
        name: default_complaint(default, entity_type.constrained.get(name, Any))
        for name, default in fixed.items()
    }
    return [
        f"{entity_type.where}: {entity_type.name}.{name}: {complaint}"
        for name, complaint in complaints.items()
        if complaint
    ]
