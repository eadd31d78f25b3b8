"""The handlers of a task: `on_event`, `on_atom_complete`, and the methods that reply to portals."""

import inspect
import typing
from collections.abc import Callable
from typing import Any, Final

from penstock.base.annotations import signature_of
from penstock.base.constraint import without_constraints
from penstock.model.declaration import where_of
from penstock.model.handler import MARKS, function_in
from penstock.model.resolver import Resolver
from penstock.model.streams.event_type import EventType
from penstock.model.streams.flow import Emit
from penstock.model.streams.portal import Portal
from penstock.model.streams.stream import UNKNOWN, type_name
from penstock.model.streams.task_type import Responder, TaskType
from penstock.model.streams.type_fit import fits

_HANDLERS: Final = ("on_event", "on_atom_complete")


class HandlerSearch:
    """Finds the handlers of one task, and the types of the events that it takes and publishes."""

    def __init__(self, task: TaskType, resolver: Resolver) -> None:
        self._task = task
        self._resolver = resolver
        self._published: list[Any] = []

    def find_service(self) -> None:
        """Set the methods that reply to portals; a service has no other handlers."""
        task = self._task
        for name in ("on_event", "on_atom_complete"):
            if hasattr(task.cls, name):
                what = f"{name}, which a service never runs; begin with flow(name, stream) to take events"
                self._complain(task.where, f"has {what}")
        self._complain_of_members()
        self._find_responders()
        if not task.responders:
            self._complain(
                task.where, "replies to no portal; mark a method with the `reply` of a portal"
            )
        if self._published:
            what = "takes `out`, and a service publishes no stream; begin with flow(name, stream), and end with .sink(name)"
            self._complain(task.where, what)

    def find(self, taken: Any) -> None:
        """Set the handlers and the types of the task.

        Args:
            taken: The type of the events that reach the task; `UNKNOWN` if nothing declares it.
        """
        self._find_on_event(taken)
        self._find_completion()
        self._complain_of_members()
        self._find_responders()
        published = list(dict.fromkeys(self._published))
        if published:
            union = published[0] if len(published) == 1 else typing.Union[tuple(published)]  # noqa: UP007
            self._task.output = EventType(f"output of task {self._task.name}", union)

    def _complain_of_members(self) -> None:
        """Complain of handlers that are no methods, and of marks that no task obeys."""
        for name, member in inspect.getmembers_static(self._task.cls):
            function = function_in(member)
            if function is None:
                continue
            where = where_of(function)
            is_handler = name in _HANDLERS or hasattr(function, "__portal__")
            if is_handler and not inspect.isfunction(member):
                self._complain(
                    where, f"{name} is a {type(member).__name__}; write a method with def"
                )
            marks = [word for mark, word in MARKS.items() if hasattr(function, mark)]
            if marks:
                self._complain(
                    where, f"{name} is marked {marks[0]}, which is not for tasks; remove it"
                )

    def _find_responders(self) -> None:
        for _, function in inspect.getmembers_static(self._task.cls, inspect.isfunction):
            portal = getattr(function, "__portal__", None)
            if isinstance(portal, Portal):
                self._add_responder(portal, function)

    def _find_on_event(self, taken: Any) -> None:
        task = self._task
        on_event = inspect.getattr_static(task.cls, "on_event", None)
        if not inspect.isfunction(on_event):
            self._complain(task.where, "has no method on_event(self, event, out)")
            return
        annotation, task.takes_out = self._handler(on_event)
        result = without_constraints(self._hints(on_event).get("return", type(None)))
        if result not in (type(None), Any, typing.NoReturn):
            what = f"on_event returns {type_name(result)}, which is lost; publish events with `out(event)`, and return None"
            self._complain(where_of(on_event), what)
        annotation = taken if annotation is UNKNOWN else annotation
        if annotation is UNKNOWN:
            self._complain(where_of(on_event), "on_event does not declare the type of its event")
        else:
            task.event = EventType(f"task {task.name}", annotation)

    def _find_completion(self) -> None:
        task = self._task
        completion = inspect.getattr_static(task.cls, "on_atom_complete", None)
        if not inspect.isfunction(completion):
            return
        task.completion = completion
        task.completion_takes_out = len(signature_of(completion).parameters) > 1
        if task.completion_takes_out:
            self._note_output(completion, -1)
        if inspect.iscoroutinefunction(completion):
            self._complain(
                where_of(completion),
                "on_atom_complete is async; only on_event, and methods that reply to a portal, can wait. In a task without "
                "keys, on_atom_complete can ask with .then: portal.ask(request).then(self.on_reply, out)",
            )

    def _add_responder(self, portal: Portal[Any, Any], function: Callable[..., Any]) -> None:
        taken, takes_out = self._handler(function)
        self._check_types(portal, function, taken)
        if portal.name in self._task.responders:
            self._complain(where_of(function), f"has two methods that reply to {portal.name}")
        self._task.responders[portal.name] = Responder(portal, function, takes_out)

    def _check_types(
        self, portal: Portal[Any, Any], function: Callable[..., Any], taken: Any
    ) -> None:
        """Complain if a method that replies does not have the types of its portal."""
        request, reply = portal.annotations
        taken = without_constraints(taken)
        given = without_constraints(self._hints(function).get("return", UNKNOWN))
        name = f"the method that replies to {portal.name}"
        if not fits(request, taken):
            what = f"{name} takes {type_name(taken)}, and its requests are {type_name(request)}"
            self._complain(where_of(function), what)
        if not fits(given, reply):
            what = f"{name} returns {type_name(given)}, and its replies are {type_name(reply)}"
            self._complain(where_of(function), what)

    def _handler(self, function: Callable[..., Any]) -> tuple[Any, bool]:
        """Return the type of the event that a handler takes, and whether it takes `out`."""
        parameters = list(signature_of(function).parameters)
        if not 2 <= len(parameters) <= 3:
            what = f"{function.__name__} takes (self, event) or (self, event, out)"
            self._complain(where_of(function), what)
            return Any, False
        label = f"{self._task.name}.{function.__name__}({parameters[1]})"
        annotation = self._hints(function).get(parameters[1], UNKNOWN)
        if annotation is not UNKNOWN:
            annotation = self._resolver.resolve(annotation, function, where_of(function), label)
        takes_out = len(parameters) == 3
        if takes_out:
            self._note_output(function, 2)
        return annotation, takes_out

    def _note_output(self, function: Callable[..., Any], index: int) -> None:
        """Note the type of the events that a handler publishes, from the annotation of its `out`."""
        name = list(signature_of(function).parameters)[index]
        hint = self._hints(function).get(name)
        if typing.get_origin(hint) is not Emit:
            what = f"{function.__name__}({name}) does not declare the type of its events: `{name}: Emit[int]`"
            self._complain(where_of(function), what)
            return
        label = f"{self._task.name}.{function.__name__}({name})"
        published = typing.get_args(hint)[0]
        self._published.append(
            self._resolver.resolve(published, function, where_of(function), label)
        )

    def _hints(self, function: Callable[..., Any]) -> dict[str, Any]:
        what = f"{self._task.name}.{function.__name__}"
        return self._resolver.hints(function, what, self._task.cls)

    def _complain(self, where: str, complaint: str) -> None:
        self._resolver.complaints.append(f"{where}: {self._task.name}: {complaint}")
