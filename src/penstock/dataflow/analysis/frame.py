"""A frame: the abstract state of one function, that is, its names, edges and warnings.

A frame records edges and warnings for the method that is analysed; the summaries of called functions
are merged into it. All frames of an analysis share an `AnalysisContext`. `expression` and `statement`
interpret the syntax.
"""

import ast
import builtins
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any, Final

from penstock.dataflow.analysis.hazard import MESSAGES, hazard_of
from penstock.dataflow.analysis.source import Sources, place_of
from penstock.dataflow.analysis.value import NOTHING, UNKNOWN, Value, constant, join
from penstock.dataflow.graph import (
    UNKNOWN_OPERATOR,
    Action,
    Edge,
    Endpoint,
    Hazard,
    Origin,
    PlanWarning,
)
from penstock.model.application import App
from penstock.model.declaration import RESERVED

SummaryKey = tuple[object, ...]
"""The context of a summary: the syntax tree, the analysed method, and the arguments."""


@dataclass(frozen=True, slots=True)
class FunctionSummary:
    """The summary of a function: its edges, its warnings and its result."""

    edges: tuple[Edge, ...] = ()
    warnings: tuple[PlanWarning, ...] = ()
    returned: Value = NOTHING


@dataclass(slots=True)
class AnalysisContext:
    """The state that all frames of an analysis share.

    Attributes:
        method_names, attribute_names: The names of all entities, for accesses to unknown receivers.
        methods: Returns the summary of an entity's method.
        finished: The final summaries.
        running: The results, so far, of functions whose analysis is running.
        contexts: The number of argument contexts of each function.
        guesses: How often a result in `running` was used.
        guessed: The contexts whose result in `running` was used.
        exclusive: The tasks whose handlers never run between the steps of a waiting handler of the same key.
    """

    app: App
    sources: Sources
    classes: Mapping[str, type]
    method_names: frozenset[str]
    attribute_names: frozenset[str]
    methods: Callable[[type, str], FunctionSummary] = lambda cls, name: FunctionSummary()
    finished: dict[SummaryKey, FunctionSummary] = field(default_factory=dict)
    running: dict[SummaryKey, Value] = field(default_factory=dict)
    guesses: int = 0
    contexts: dict[object, int] = field(default_factory=dict)
    guessed: set[SummaryKey] = field(default_factory=set)
    exclusive: frozenset[Endpoint] = frozenset()

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """Forget the functions that an error leaves unfinished."""
        running, guessed = dict(self.running), set(self.guessed)
        try:
            yield
        except BaseException:
            self.running, self.guessed = running, guessed
            raise


def describe(app: App, sources: Sources) -> AnalysisContext:
    """Return the context of an application."""
    entities = app.entities.values()
    return AnalysisContext(
        app,
        sources,
        {name: entity.cls for name, entity in app.entities.items()},
        frozenset(name for entity in entities for name in functions_of(entity.cls)).union(RESERVED),
        frozenset(name for entity in entities for name in entity.attributes),
    )


def functions_of(cls: type) -> dict[str, type]:
    """Return the user's functions and properties of an entity class, with the defining class."""
    return {
        name: owner
        for owner in reversed(cls.__mro__)
        if owner is not object
        for name, member in vars(owner).items()
        if isinstance(member, FunctionType | property)
        and not (name.startswith("__") and name.endswith("__"))
        and name not in RESERVED
    }


_MISSING: Final = object()


class Frame:
    """The abstract values of a function's names, and its recorded effects."""

    def __init__(
        self,
        application: AnalysisContext,
        source: Endpoint,
        function: FunctionType,
        owner: type | None = None,
        parent: "Frame | None" = None,
    ) -> None:
        """Start with no names.

        Args:
            application: The shared state.
            source: The method that is analysed.
            function: The function, or the function around it: has the globals and the file.
            owner: The class that defines it, for `super()`.
            parent: The frame around a nested function.
        """
        self.application = application
        self.source = source
        self.function = function
        self.owner = owner
        self.parent = parent
        self.names: dict[str, Value] = {}
        self.shared_names: set[str] = set()
        self.edges: dict[Edge, None] = {}
        self.warnings: dict[PlanWarning, None] = {}
        self.returned = NOTHING
        self.yielded = NOTHING
        self._loops = 0
        self._branches = 0

    @property
    def visible(self) -> Mapping[str, Any]:
        """The names that an annotation may use."""
        return {**self.application.classes, **self.function.__globals__}

    def look(self, name: str, node: ast.AST) -> Value:
        """Return the abstract value of a name."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.names:
                return frame.names[name]
            frame = frame.parent
        thing = self.outer(name)
        if thing is _MISSING:
            return UNKNOWN
        self.check(thing, name, node)
        return constant(thing)

    def outer(self, name: str) -> Any:
        """Return the object of a name outside all functions."""
        cells = zip(
            self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True
        )
        for free, cell in cells:
            if free == name:
                with contextlib.suppress(ValueError):  # a cell that is not filled yet
                    return cell.cell_contents
        return self.function.__globals__.get(name, getattr(builtins, name, _MISSING))

    def is_outer(self, name: str) -> bool:
        """Whether a name refers to an object that outlives the transaction."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.names and name not in frame.shared_names:
                return False
            frame = frame.parent
        return self.outer(name) is not _MISSING

    def check(self, thing: Any, name: str, node: ast.AST) -> None:
        """Warn of a hazard."""
        if hazard := hazard_of(thing):
            self.warn(node, f"{name} {MESSAGES[hazard]}", hazard)

    def warn_global(self, node: ast.AST, name: str) -> None:
        """Warn of an assignment to a name or an attribute that outlives the transaction."""
        self.warn(node, f"{name} is global, so its value is not part of the state", Hazard.GLOBAL)

    def warn(self, node: ast.AST, message: str, hazard: Hazard | None = None) -> None:
        """Record a warning at a line."""
        where = place_of(self.function, getattr(node, "lineno", 0))
        self.warnings[PlanWarning(where, self.source, message, hazard)] = None

    def edge(self, node: ast.AST, action: Action, target: Endpoint, origin: Origin) -> None:
        """Record an edge at a line."""
        where = place_of(self.function, getattr(node, "lineno", 0))
        looped, conditional = self._loops > 0, self._branches > 0
        made = Edge(self.source, target, action, where, looped, conditional, origin)
        self.edges[made] = None

    def unknown(self, node: ast.AST, action: Action, member: str) -> None:
        """Record an edge with an unknown receiver."""
        self.edge(node, action, Endpoint(UNKNOWN_OPERATOR, member), Origin.UNKNOWN)

    def merge(self, summary: FunctionSummary) -> None:
        """Add the effects of a called function."""
        for edge in summary.edges:
            looped = edge.looped or self._loops > 0
            conditional = edge.conditional or self._branches > 0
            self.edges[replace(edge, looped=looped, conditional=conditional)] = None
        self.warnings.update(dict.fromkeys(summary.warnings))

    @contextlib.contextmanager
    def loop(self) -> Iterator[None]:
        """Mark the effects inside as happening any number of times."""
        self._loops += 1
        yield
        self._loops -= 1

    @contextlib.contextmanager
    def branch(self, *, taken: bool = True) -> Iterator[None]:
        """Mark the effects inside as conditional, if `taken`."""
        self._branches += taken
        yield
        self._branches -= taken

    def bind(self, name: str, value: Value) -> None:
        """Assign to a name, in the frame that it belongs to."""
        frame: Frame | None = self.parent if name in self.shared_names else None
        while frame is not None:
            if name in frame.names:
                frame.names[name] = join((frame.names[name], value))
                return
            frame = frame.parent
        self.names[name] = value

    def summary(self) -> FunctionSummary:
        """Return the summary of this frame."""
        return FunctionSummary(tuple(self.edges), tuple(self.warnings), self.returned)
