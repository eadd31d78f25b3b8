"""Calls, written as one writes Python: `calling.Item("i1").add(5)`.

A `Calling` turns such an expression into a `Call`, which is plain data, and hands it to a function
that performs it: a runtime at once, a client over HTTP, or later. With an application it promises
that only what exists is called; without one it takes any name. What a performed call returns, and
when its arguments are checked, is left to the function.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.model.application import App
from penstock.model.declaration import CREATIONS


@dataclass(frozen=True, slots=True)
class Call:
    """A call that is not performed yet.

    Attributes:
        entity: The class's name; empty for a function.
        key: The entity's key, None where a creation shall derive it.
        method: The method's or function's name.
        positional: Arguments by position.
        named: Arguments by name.
        request_id: Chosen by the caller; None leaves the choice to who performs it.
    """

    entity: str
    key: object
    method: str
    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    request_id: str | None = None


def returns_of(app: App | None, call: Call) -> Any:
    """Return the type of a call's result: a reference for what creates, `Any` where unknown.

    Raises:
        RequestError: The application has nothing of that name.
    """
    if app is None:
        return Any
    if call.entity in app.entities and call.method in CREATIONS:
        return app.entities[call.entity].cls
    return app.signature(call.entity, call.method).returns


class Calling:
    """Calls entities and functions as one writes it.

    `calling.Item("i1").update_stock(5)` calls a method, `calling.Item.create("i1", price=3)`
    creates, `calling.checkout_all(…)` calls a function. Without an application, names that begin
    with a capital letter are entity classes. `request_id=` is every call's own.
    """

    def __init__(self, app: App | None, perform: Callable[[Call], Any]) -> None:
        self._app = app
        self._perform = perform

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        app = self._app
        if name in app.entities if app is not None else name[:1].isupper():
            return _EntityCalling(app, self._perform, name)
        if app is not None:
            app.signature("", name)
        return _Method(self._perform, "", None, name)


class _EntityCalling:
    """A class: gives callers of its entities, and creates them."""

    def __init__(self, app: App | None, perform: Callable[[Call], Any], name: str) -> None:
        self._app = app
        self._perform = perform
        self._name = name

    def __call__(self, key: object) -> "_ReferenceCalling":
        return _ReferenceCalling(self._app, self._perform, self._name, key)

    def create(self, *positional: Any, request_id: str | None = None, **named: Any) -> Any:
        """Create an entity; its key comes first, or is derived from the request."""
        key: object = None
        app = self._app
        if positional and (app is None or app.entities[self._name].initializer is None):
            key, *rest = positional
            positional = tuple(rest)
        return self._perform(Call(self._name, key, "create", positional, named, request_id))

    def exists(self, key: object) -> Any:
        """Say whether an entity exists."""
        return self._perform(Call(self._name, key, "exists"))


class _ReferenceCalling:
    """An entity: its methods, as calls from outside."""

    def __init__(
        self, app: App | None, perform: Callable[[Call], Any], name: str, key: object
    ) -> None:
        self._app = app
        self._perform = perform
        self._name = name
        self._key = key

    def __getattr__(self, method: str) -> "_Method":
        if method.startswith("__"):
            raise AttributeError(method)
        if self._app is not None:
            self._app.signature(self._name, method)
        return _Method(self._perform, self._name, self._key, method)


class _Method:
    """One method of one entity, or one function."""

    def __init__(
        self, perform: Callable[[Call], Any], entity: str, key: object, method: str
    ) -> None:
        self._perform = perform
        self._target = (entity, key, method)

    def __call__(self, *positional: Any, request_id: str | None = None, **named: Any) -> Any:
        return self._perform(Call(*self._target, positional, named, request_id))
