"""The plan of one workflow: the nodes of its flow in the order in which they run, with their types.

Types flow from the source to the sink. A function without annotations, such as a lambda, gives events of an
unknown type, which are checked where a task or the sink declares a type.
"""

import inspect
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from penstock.base.annotations import signature_of
from penstock.base.constraint import constraint_complaints, has_constraints, without_constraints
from penstock.base.key_text import is_key_type
from penstock.base.record import simplified
from penstock.base.schema import name_of, reference_type
from penstock.model.declaration import where_of
from penstock.model.handler import MARKS, function_in
from penstock.model.resolver import Resolver
from penstock.model.streams.event_type import EventType
from penstock.model.streams.flow import Emit, FlowNode, FlowOperator, Workflow
from penstock.model.streams.interface import fits
from penstock.model.streams.portal import Portal
from penstock.model.streams.stream import UNKNOWN, Stream, type_name
from penstock.model.streams.task_rows import completing_class, row_types
from penstock.model.streams.task_type import Responder, TaskType
from penstock.model.time_limit import refuse_rates, time_of

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


def task_type(
    node: FlowNode,
    workflow: str,
    taken: Any,
    key_annotation: Any,
    resolver: Resolver,
    *,
    is_service: bool = False,
) -> TaskType | None:
    """Describe a task; return None after a complaint.

    Args:
        taken: The type of the events that reach the task; `UNKNOWN` if nothing declares it.
        key_annotation: The type of the keys; None for a flow without keys.
        is_service: Whether the task takes questions only.
    """
    cls: Any = node.function
    full_name = f"{workflow}.{node.name}"
    before = len(resolver.complaints)
    if not isinstance(cls, type) or reference_type(cls) is not None:
        resolver.complaints.append(
            f"{node.where}: .task of workflow {workflow}: {cls!r} is no task; a task is a class that is no entity, "
            "with a method on_event(self, event, out)"
        )
        return None
    if not (key_annotation in (None, UNKNOWN) or _is_key_type(key_annotation)):
        resolver.complaints.append(
            f"{node.where}: {full_name}: {name_of(key_annotation)} cannot be a key; a key is a str, int, UUID, "
            "date, datetime, an Enum, a tuple of these, or a reference to an entity"
        )
        return None
    is_keyed = key_annotation is not None
    rows, shared = row_types(cls, full_name, key_annotation, resolver)
    task = TaskType(
        full_name, cls, node.where, is_keyed, key_annotation, node.exclusive, rows, shared
    )
    rows.cls.__task__ = task  # type: ignore[attr-defined]
    task.completing = completing_class(task)
    search = HandlerSearch(task, resolver)
    search.find_service() if is_service else search.find(taken)
    return task if len(resolver.complaints) == before else None


def _is_key_type(annotation: Any) -> bool:
    return is_key_type(annotation) or reference_type(annotation) is not None


@dataclass(slots=True, eq=False)
class WorkflowPlan:
    """A workflow, ready to run.

    Attributes:
        tasks: Its tasks in the order in which they take an atom.
        nodes: The node of each task, by the name of the task.
        behind: The tasks that take events of a task, directly or through others, by the name of the task; in the
            order of `tasks`.
        sink_task: The task whose events are the atom of the sink, without a function or another task behind it, if the
            events are of a plain type; else None.
        time_ms: The processor time of a step: the longest that its handlers and functions declare by `@limit(time=…)`; None
            if they declare none.
    """

    workflow: Workflow[Any]
    tasks: list[TaskType] = field(default_factory=list)
    nodes: dict[str, FlowNode] = field(default_factory=dict)
    task_of: dict[FlowNode, TaskType] = field(default_factory=dict)
    behind: dict[str, tuple[TaskType, ...]] = field(default_factory=dict)
    sink_task: TaskType | None = None
    time_ms: int | None = None
    _published: dict[FlowNode, Any] = field(default_factory=dict)

    def published_as(self, node: FlowNode) -> Any:
        """Return the type with which the source or a task has published the events of a node.

        Returns:
            The type; `UNKNOWN` for events that a function of the workflow has made, and where two types meet.
        """
        if node not in self._published:
            self._published[node] = self._origin(node)
        return self._published[node]

    def _origin(self, node: FlowNode) -> Any:
        match node.operator:
            case FlowOperator.SOURCE:
                return self.workflow.source.events.constrained
            case FlowOperator.TASK:
                output = self.task_of[node].output
                return UNKNOWN if output is None else output.constrained
            case FlowOperator.MAP | FlowOperator.FLAT_MAP:
                return UNKNOWN
            case _:
                # Filter, key and union hand events on as they are, so an encoded event need not be
                # checked again.
                first, *others = map(self.published_as, node.inputs)
                return first if all(other == first for other in others) else UNKNOWN


class _Typed(msgspec.Struct, frozen=True):
    """The type of a node's events, and of their keys: None without keys.

    `unkeyed` says why not all events have keys of this type; empty if they have. Then `.key` must come before a task.
    """

    annotation: Any
    key: Any = None
    unkeyed: str = ""


def plan_of(workflow: Workflow[Any], resolver: Resolver) -> WorkflowPlan:
    """Return the plan of a workflow; mistakes become complaints of the resolver."""
    planning = _Planning(workflow, resolver)
    last = planning.visit(workflow.last)
    if workflow.annotation is UNKNOWN:
        workflow.annotation = last.annotation
    if workflow.annotation is UNKNOWN:
        resolver.complaints.append(
            f"{workflow.where}: workflow {workflow.flow_name}: the type of its events is unknown; name it: "
            f'.sink("{workflow.name}", int)'
        )
        workflow.annotation = Any
    elif not fits(last.annotation, workflow.annotation):
        resolver.complaints.append(
            f"{workflow.where}: workflow {workflow.flow_name} publishes {type_name(last.annotation)}, and its "
            f"sink {workflow.name} is declared with {type_name(workflow.annotation)}"
        )
    plan = planning.plan
    for name, node in plan.nodes.items():
        plan.behind[name] = tuple(
            task
            for task in plan.tasks
            if task.name != name and _takes_from(plan.nodes[task.name], node)
        )
    plan.sink_task = _sink_task(plan)
    return plan


def _sink_task(plan: WorkflowPlan) -> TaskType | None:
    """Return the task of the last node, if its events are published as they are."""
    task = plan.task_of.get(plan.workflow.last)
    if task is None or task.output is None or not task.output.is_plain or plan.behind[task.name]:
        return None
    declared = plan.workflow.declared
    published = (
        plan.workflow.annotation if declared is UNKNOWN else simplified(declared, constrained=True)
    )
    return task if task.output.constrained == published else None


def _takes_from(node: FlowNode, source: FlowNode) -> bool:
    return any(taken is source or _takes_from(taken, source) for taken in node.inputs)


class _Planning:
    """Visits the nodes of one workflow, inputs first."""

    def __init__(self, workflow: Workflow[Any], resolver: Resolver) -> None:
        self.plan = WorkflowPlan(workflow)
        self._source: Stream[Any] = workflow.source
        self._name = workflow.flow_name
        self._resolver = resolver
        self._visited: dict[FlowNode, _Typed] = {}
        self._sources: list[FlowNode] = []

    def visit(self, node: FlowNode) -> _Typed:
        """Return the type of a node's events; note its tasks, those in front of it first."""
        if node not in self._visited:
            inputs = [self.visit(before) for before in node.inputs]
            self._visited[node] = self._typed(node, inputs)
            self._take_time(node)
        return self._visited[node]

    def _take_time(self, node: FlowNode) -> None:
        """Let a step take the time that a function, or a handler of a task, declares."""
        if node.function is None:
            return
        functions: list[Any] = [node.function]
        if node.operator is FlowOperator.TASK:
            functions += [
                member for _, member in inspect.getmembers_static(node.function, inspect.isfunction)
            ]
        for function in functions:
            name = getattr(function, "__qualname__", node.name)
            refuse_rates(function, node.where, name, self._resolver.complaints)
            time_ms = time_of(function, node.where, name, self._resolver.complaints)
            if time_ms is not None:
                self.plan.time_ms = max(time_ms, self.plan.time_ms or 0)

    def _typed(self, node: FlowNode, inputs: list[_Typed]) -> _Typed:
        match node.operator:
            case FlowOperator.SOURCE:
                self._check_source(node)
                return _Typed(self._source.annotation)
            case FlowOperator.UNION:
                return self._union(node, inputs)
            case FlowOperator.TASK:
                return self._task(node, inputs[0])
            case _:
                return self._function(node, inputs[0])

    def _function(self, node: FlowNode, taken: _Typed) -> _Typed:
        if node.function is None or not callable(node.function):
            self._complain(node, f"{node.function!r} is not a function")
            return _Typed(UNKNOWN)
        if has_constraint(node.function):
            self._complain(
                node,
                "its function has a constraint in Annotated, which is not enforced here; declare it for the stream, the task "
                "or the sink",
            )
        wanted, result = types_of(node.function)
        if not fits(taken.annotation, wanted):
            self._complain(
                node,
                f"its function takes {type_name(wanted)}, and the events are {type_name(taken.annotation)}",
            )
        match node.operator:
            case FlowOperator.MAP:
                return _Typed(result, taken.key, taken.unkeyed)
            case FlowOperator.FLAT_MAP:
                return _Typed(_element_of(result), taken.key, taken.unkeyed)
            case FlowOperator.KEY:
                return _Typed(taken.annotation, result)
            case _:
                return taken

    def _check_source(self, node: FlowNode) -> None:
        self._sources.append(node)
        if len(self._sources) > 1:
            self._complain(
                node,
                "a union joins branches of a single flow(…); to join streams, declare a sequencer",
            )

    def _union(self, node: FlowNode, inputs: list[_Typed]) -> _Typed:
        keys = list(dict.fromkeys(branch.key for branch in inputs))
        unkeyed = next((branch.unkeyed for branch in inputs if branch.unkeyed), "")
        if len(keys) > 1:
            names = " and ".join("no key" if key is None else type_name(key) for key in keys)
            unkeyed = f"the branches of the union at {node.where} have different keys: {names}"
        annotations = list(dict.fromkeys(branch.annotation for branch in inputs))
        if len(annotations) == 1:
            annotation = annotations[0]
        else:
            annotation = UNKNOWN if UNKNOWN in annotations else typing.Union[tuple(annotations)]  # noqa: UP007
        return _Typed(annotation, keys[0], unkeyed)

    def _task(self, node: FlowNode, taken: _Typed) -> _Typed:
        if taken.unkeyed:
            self._complain(node, f"{taken.unkeyed}; use .key before this task")
        plan = self.plan
        is_service = self.plan.workflow.is_service
        task = task_type(
            node, self._name, taken.annotation, taken.key, self._resolver, is_service=is_service
        )
        if task is None:
            return _Typed(Any, taken.key)
        if task.name in plan.nodes:
            self._complain(node, f"two tasks are named {node.name}; give one another name=")
        if task.event is not None and not fits(taken.annotation, task.event.annotation):
            self._complain(
                node,
                f"{task.name} takes {type_name(task.event.annotation)}, and the events are "
                f"{type_name(taken.annotation)}",
            )
        plan.tasks.append(task)
        plan.nodes[task.name] = node
        plan.task_of[node] = task
        completes = task.completion_takes_out and taken.key is not None
        unkeyed = f"{task.name} publishes events in on_atom_complete, which have no key"
        return _Typed(
            task.output.annotation if task.output else Any,
            taken.key,
            unkeyed if completes else "",
        )

    def _complain(self, node: FlowNode, complaint: str) -> None:
        name = f".{node.operator.value} of workflow {self._name}"
        self._resolver.complaints.append(f"{node.where}: {name}: {complaint}")


def types_of(function: Callable[..., Any]) -> tuple[Any, Any]:
    """Return the types that a function declares for its first parameter and its result."""
    # A class makes its own instances; its `__init__` may take anything.
    if isinstance(function, type):
        return UNKNOWN, function
    try:
        hints = typing.get_type_hints(inspect.unwrap(function))
        parameters = list(signature_of(function).parameters)
    except (TypeError, ValueError, NameError, AttributeError):
        return UNKNOWN, UNKNOWN
    result = hints.get("return", UNKNOWN)
    wanted = hints.get(parameters[0], UNKNOWN) if parameters else UNKNOWN
    return wanted, UNKNOWN if result is Any else result


def has_constraint(function: Callable[..., Any]) -> bool:
    """Say whether the type of a parameter or of the result of a function has a constraint."""
    try:
        hints = typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    except (TypeError, NameError, AttributeError):
        return False
    return any(
        bool(constraint_complaints(hint)) or has_constraints(simplified(hint, constrained=True))
        for hint in hints.values()
    )


def _element_of(annotation: Any) -> Any:
    """Return the type of the elements of a collection's type; `UNKNOWN` if it says none."""
    arguments = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if not arguments or not isinstance(origin, type) or not issubclass(origin, Iterable):
        return UNKNOWN
    one_type = origin is not tuple or arguments[-1] is Ellipsis
    return arguments[0] if one_type else UNKNOWN
