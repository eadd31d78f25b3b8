"""Calls from outside of transactions, as plain data and as Python expressions.

A `Calling` makes a `Call` of an expression and hands it to a function, which performs it (a runtime at
once, a client over HTTP) or keeps it for later. There are two forms of the expression:

```python
calling(Item.add, Item("i1"), 5)  # type checkers know the parameters and the result
calling.Item("i1").add(5)  # needs no class: the application looks up the names
```

The result of a performed call, and the time when its arguments are checked, depend on the function.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, ParamSpec, Self, TypeVar

from penstock.base.schema import reference_type
from penstock.errors import RequestError
from penstock.model.application import App, unknown
from penstock.model.declaration import CREATIONS
from penstock.model.entity_type import EntityType
from penstock.model.request import APPEND, NAMES, Request
from penstock.model.running_step import Outlet
from penstock.model.streams.event_list import given_events
from penstock.model.streams.stream import Stream

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Call(Generic[T_co]):
    """A call, or an append to a stream, that is not performed yet; the type parameter is the type of its result.

    In an append, `entity` is empty and `key` is the name of the stream; `positional` are the events.

    Attributes:
        entity: The name of the class; empty for a function.
        key: The key of the entity; None if a creation derives it.
        method: The name of the method or function.
        request_id: The request id that the caller chose; None for a new id.
    """

    entity: str
    key: object
    method: str
    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    request_id: str | None = None

    @property
    def stream(self) -> str | None:
        """The stream of an append; None for a call."""
        return None if self.entity or self.key is None else str(self.key)


Perform = Callable[[Call[Any]], Any]
"""Performs a call and returns its result, an awaitable of it, or the call itself."""


def call_of(
    method: Callable[..., T], positional: Sequence[Any], named: Mapping[str, Any]
) -> Call[T]:
    """Return the call of a method, a creation or a function.

    Args:
        method: The function as its class or module has it: `Item.add`, `Item.create`, `transfer`. Or a method of a
            reference: `item.add`.
        positional: The arguments; those of `Item.add` begin with the reference.

    Raises:
        RequestError: A method was given without a reference to an entity of its class.
    """
    if isinstance(method, str):
        raise RequestError(
            f"{method!r} is a text; name the method itself, as in call(Item.create, 'i1', price=3) or call(Item('i1').add, 5)"
        )
    name = getattr(method, "__name__", repr(method))
    of = getattr(method, "__self__", None)
    creator = _entity_type(of)
    if creator is not None:
        return _class_call(creator, name, positional, named)
    if _entity_type(type(of)) is not None:
        method, positional = method.__func__, (of, *positional)  # type: ignore[attr-defined]
    receiver = _entity_type(type(positional[0])) if positional else None
    known_as = None if receiver is None else _name_in(receiver, method, name)
    if receiver is not None and known_as is not None:
        key = receiver.key_at(receiver.text_of(positional[0]))
        return Call(receiver.name, key, known_as, tuple(positional[1:]), named)
    *owner, _ = getattr(method, "__qualname__", name).rpartition("<locals>.")[2].split(".")
    if owner:
        raise RequestError(
            f"{owner[-1]}.{name} needs a reference as its first argument: "
            f"call({owner[-1]}.{name}, {owner[-1]}(key), …)"
        )
    return Call("", None, name, tuple(positional), named)


def _name_in(receiver: EntityType, method: object, name: str) -> str | None:
    """Return the name that a class has for a function, which a decorator can have renamed; None for a stranger."""
    declaring = (receiver.cls, *receiver.interfaces)
    if any(getattr(cls, name, None) is method for cls in declaring):
        return name
    return next(
        (known for known in receiver.methods if getattr(receiver.cls, known) is method), None
    )


def append_of(
    stream: Stream[T] | str, events: Iterable[T], request_id: str | None = None
) -> Call[int]:
    """Return the append of one atom; its result is the number of events.

    Args:
        request_id: The id of the append; None for a new id.

    Raises:
        RequestError: The events are no list.
    """
    name = stream.name if isinstance(stream, Stream) else stream
    return Call("", name, APPEND, given_events(name, events), request_id=request_id)


def entity_type_of(app: App | None, given: Any) -> EntityType:
    """Return the class of a reference, or of itself, as an application has it.

    Raises:
        RequestError: It is not an entity class, or the application does not have it.
    """
    entity_type = _entity_type(given) or _entity_type(type(given))
    if entity_type is None:
        raise RequestError(
            f"{given!r} is neither a reference nor an entity class; write Item('i1') for an entity, and Item for the class"
        )
    if app is not None and app.entities.get(entity_type.name) is not entity_type:
        raise RequestError(f"{entity_type.name} is not part of the application {app.name}")
    return entity_type


def _entity_type(cls: Any) -> EntityType | None:
    """Return the description of a class where it is an entity class."""
    entity_type = reference_type(cls) if isinstance(cls, type) else None
    return entity_type if isinstance(entity_type, EntityType) else None


def _class_call(
    cls: EntityType, method: str, positional: Sequence[Any], named: Mapping[str, Any]
) -> Call[Any]:
    """Return the call of a creation or `exists`, whose key comes first."""
    key: Any = None
    if positional and not (method in CREATIONS and cls.runs_initializer(method)):
        key, *positional = positional
        if _entity_type(type(key)) is cls:
            key = cls.key_at(cls.text_of(key))
    return Call(cls.name, key, method, tuple(positional), named)


def encoded(app: Outlet, call: Call[Any]) -> tuple[bytes, bytes]:
    """Return the body of a log entry for a call or an append, and its access hint; see `App.request`.

    Raises:
        RequestError: The class, method, function or stream does not exist, or the arguments do not fit.
    """
    if call.stream is not None:
        return app.append(call.stream, call.positional), b""
    return app.request(call.entity, call.key, call.method, call.positional, call.named)


def sent(app: Outlet, call: Call[Any]) -> bytes:
    """Return the body of a call that a handler makes, with the present defaults of arguments that it left out.

    Raises:
        RequestError: See `encoded`.
    """
    if not call.entity and call.method in app.effects:
        return app.effect_request(call.method, call.positional, call.named)
    signature = app.signature(call.entity, call.method)
    named = signature.completed(call.positional, call.named)
    if (
        call.method in CREATIONS
    ):  # its arguments are as the rows of the class, which `@migrate` may change
        named = {**named, NAMES: app.entity(call.entity).shape.tag}
    return encoded(app, call if named is call.named else replace(call, named=named))[0]


def readable(app: App, call: Call[Any]) -> Request:
    """Return the request of a call or an append for a gateway; see `App.readable_request`.

    Raises:
        RequestError: See `encoded`.
    """
    if call.stream is not None:
        return app.readable_append(call.stream, call.positional)
    return app.readable_request(call.entity, call.key, call.method, call.positional, call.named)[0]


def returns_of(app: App | None, call: Call[Any]) -> Any:
    """Return the type of a call's result: a reference for a creation, a number for an append, or `Any`.

    Raises:
        RequestError: The application has no such class, method or function.
    """
    if call.stream is not None:
        return int
    if app is None:
        return Any
    if call.entity and call.method in CREATIONS:
        return app.entity(call.entity).cls
    if not call.entity and call.method in app.effects:
        return app.effects[call.method].returns
    return app.signature(call.entity, call.method).returns


class _Calling:
    """Makes calls of expressions; the subclasses differ in the type of the result.

    `calling.Item("i1").update_stock(5)` calls a method, `calling.Item.create("i1", price=3)`
    creates, `calling.checkout_all(…)` calls a function. Without an application, names that begin
    with a capital letter are entity classes. Each of these calls takes a `request_id=`.
    """

    def __init__(self, app: App | None, perform: Perform) -> None:
        self._app = app
        self._perform = perform

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        app = self._app
        if app.present_name(name) in app.entities if app is not None else name[:1].isupper():
            return _EntityCalling(app, self._perform, name)
        if app is not None:
            if name == "call" and name not in app.functions:
                raise RequestError(
                    "this object makes the calls itself; leave .call out, as in kit.acting_as('ada')(Item.add, …)"
                )
            if name not in (*app.functions, *app.effects):
                named = (*app.entities, *app.functions)
                cased = [each for each in named if each.lower() == name.lower()]
                raise RequestError(unknown("class and no function", name, cased or named))
            app.signature("", name)
        return _performed(self._perform, "", None, name)

    def with_id(self, request_id: str) -> Self:
        """Return a `Calling` that gives this request id to a call: `call.with_id("r1")(transfer, …)`."""
        perform = self._perform
        return type(self)(self._app, lambda call: perform(replace(call, request_id=request_id)))


class Calling(_Calling):
    """Performs calls and returns their results."""

    def __call__(self, method: Callable[P, T], /, *positional: P.args, **named: P.kwargs) -> T:
        """Perform the call of a method, a creation or a function: `call(Item.add, Item("i1"), 5)`."""
        result: T = self._perform(call_of(method, positional, named))
        return result


class AsyncCalling(_Calling):
    """Performs calls; each returns its result when it is awaited. See `Calling`."""

    def __call__(
        self, method: Callable[P, T], /, *positional: P.args, **named: P.kwargs
    ) -> Coroutine[Any, Any, T]:
        """Perform the call of a method, a creation or a function."""
        result: Coroutine[Any, Any, T] = self._perform(call_of(method, positional, named))
        return result


class Preparing(_Calling):
    """Returns calls as data, for a client's `send` and `bulk`. See `Calling`."""

    def __call__(
        self, method: Callable[P, T], /, *positional: P.args, **named: P.kwargs
    ) -> Call[T]:
        """Return the call of a method, a creation or a function."""
        result: Call[T] = self._perform(call_of(method, positional, named))
        return result

    def append(
        self, stream: Stream[T] | str, events: Iterable[T], *, request_id: str | None = None
    ) -> Call[int]:
        """Return the append of one atom to a stream.

        `prepare(append, …)` prepares the call of an application's function with the name `append`.

        Args:
            request_id: The id of the append; None for a new id.

        Raises:
            RequestError: The events are no list.
        """
        result: Call[int] = self._perform(append_of(stream, events, request_id))
        return result


class _EntityCalling:
    """A class: gives callers of its entities, and creates them."""

    def __init__(self, app: App | None, perform: Perform, name: str) -> None:
        self._app = app
        self._perform = perform
        self._name = name

    def __call__(self, key: object) -> "_ReferenceCalling":
        return _ReferenceCalling(self._app, self._perform, self._name, key)

    def create(self, *positional: Any, request_id: str | None = None, **named: Any) -> Any:
        """Create an entity; its key comes first, or is derived from the request."""
        return self._made("create", positional, request_id, named)

    def upsert(self, *positional: Any, request_id: str | None = None, **named: Any) -> Any:
        """Create or replace an entity; see `create`."""
        return self._made("upsert", positional, request_id, named)

    def update_or_create(
        self, *positional: Any, request_id: str | None = None, **named: Any
    ) -> Any:
        """Change the named attributes of an entity, or create it; its key comes first."""
        return self._made("update_or_create", positional, request_id, named)

    def _made(
        self, method: str, positional: Sequence[Any], request_id: str | None, named: Any
    ) -> Any:
        key: object = None
        app = self._app
        if positional and (app is None or not app.entity(self._name).runs_initializer(method)):
            key, *positional = positional
        return self._perform(Call(self._name, key, method, tuple(positional), named, request_id))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._app is not None:
            self._app.signature(self._name, name)  # suggests similar names
        raise RequestError(f"{self._name}.{name} needs an entity: {self._name}(key).{name}(…)")

    def exists(self, key: object) -> Any:
        """Say whether an entity exists."""
        return self._perform(Call(self._name, key, "exists"))


class _ReferenceCalling:
    """An entity: its methods, as calls from outside."""

    def __init__(self, app: App | None, perform: Perform, name: str, key: object) -> None:
        self._app = app
        self._perform = perform
        self._name = name
        self._key = key

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("__"):
            raise AttributeError(method)
        if self._app is not None:
            self._app.signature(self._name, method)
        return _performed(self._perform, self._name, self._key, method)


def _performed(perform: Perform, entity: str, key: object, method: str) -> Callable[..., Any]:
    """Return a function that performs the calls of a method or a function."""

    def performed(*positional: Any, request_id: str | None = None, **named: Any) -> Any:
        return perform(Call(entity, key, method, positional, named, request_id))

    return performed
