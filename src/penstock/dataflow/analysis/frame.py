"""One function under analysis: what its names may be, and what it was found to do.

A frame records edges and warnings on behalf of the method whose body led to it; the frames of
functions that it calls are merged into it. `AnalysisContext` is what all frames of one compilation
share. How statements and expressions are read is left to `expression` and `statement`.
"""

import ast
import builtins
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any, Final

from penstock.dataflow.analysis.hazard import hazard_of
from penstock.dataflow.analysis.source import Sources, place_of
from penstock.dataflow.analysis.value import NOTHING, UNKNOWN, Value, constant, join
from penstock.dataflow.graph import UNKNOWN_OPERATOR, Action, Edge, Endpoint, Origin, PlanWarning
from penstock.model.application import App
from penstock.model.declaration import RESERVED

SummaryKey = tuple[object, ...]
"""What decides what a function does: its tree first, then for whom, and its arguments."""


@dataclass(frozen=True, slots=True)
class FunctionSummary:
    """What one function does and gives, once analysed."""

    edges: tuple[Edge, ...] = ()
    warnings: tuple[PlanWarning, ...] = ()
    returned: Value = NOTHING


@dataclass(slots=True)
class AnalysisContext:
    """What all frames of a compilation share.

    Attributes:
        method_names, attribute_names: Of all entities: what an unknown receiver may be asked.
        methods: Analyses an entity's method, once; set by the compiler.
        finished: What functions were found to do, by function and arguments.
        running: What functions under analysis are known to give, so far.
        contexts: With how many different arguments functions were analysed.
        guesses: How often such knowledge was used, and of which functions.
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


def describe(app: App, sources: Sources) -> AnalysisContext:
    """Collect the names that matter."""
    kinds = app.entities.values()
    return AnalysisContext(
        app,
        sources,
        {name: kind.cls for name, kind in app.entities.items()},
        frozenset(name for kind in kinds for name in functions_of(kind.cls)).union(RESERVED),
        frozenset(name for kind in kinds for name in kind.attributes),
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
    """The names of a running function, and the record of what it does."""

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
            application: What is shared.
            source: The method on whose behalf it runs.
            function: What runs, or what surrounds it: gives globals and file.
            owner: The class in which it is defined, for `super()`.
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
        """Return what a name may be here."""
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
        """Return what a name is outside all functions."""
        cells = zip(
            self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True
        )
        for free, cell in cells:
            if free == name:
                with contextlib.suppress(ValueError):  # a cell that is not filled yet
                    return cell.cell_contents
        return self.function.__globals__.get(name, getattr(builtins, name, _MISSING))

    def is_outer(self, name: str) -> bool:
        """Whether a name means something that outlives the transaction."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.names and name not in frame.shared_names:
                return False
            frame = frame.parent
        return self.outer(name) is not _MISSING

    def check(self, thing: Any, name: str, node: ast.AST) -> None:
        """Warn of a hazard."""
        if hazard := hazard_of(thing):
            self.warn(node, f"{name} {hazard}")

    def warn(self, node: ast.AST, message: str) -> None:
        """Record a warning at a line."""
        where = place_of(self.function, getattr(node, "lineno", 0))
        self.warnings[PlanWarning(where, self.source, message)] = None

    def edge(self, node: ast.AST, action: Action, target: Endpoint, origin: Origin) -> None:
        """Record an edge at a line."""
        where = place_of(self.function, getattr(node, "lineno", 0))
        looped, conditional = self._loops > 0, self._branches > 0
        made = Edge(self.source, target, action, where, looped, conditional, origin)
        self.edges[made] = None

    def unknown(self, node: ast.AST, action: Action, member: str) -> None:
        """Record an edge whose receiver cannot be named."""
        self.edge(node, action, Endpoint(UNKNOWN_OPERATOR, member), Origin.UNKNOWN)

    def merge(self, found: FunctionSummary) -> None:
        """Take over what a called function does."""
        for edge in found.edges:
            looped = edge.looped or self._loops > 0
            conditional = edge.conditional or self._branches > 0
            self.edges[replace(edge, looped=looped, conditional=conditional)] = None
        self.warnings.update(dict.fromkeys(found.warnings))

    @contextlib.contextmanager
    def loop(self) -> Iterator[None]:
        """Mark what is found inside as happening any number of times."""
        self._loops += 1
        yield
        self._loops -= 1

    @contextlib.contextmanager
    def branch(self, *, taken: bool = True) -> Iterator[None]:
        """Mark what is found inside as happening perhaps (if `taken`)."""
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

    def found(self) -> FunctionSummary:
        """Return what was recorded."""
        return FunctionSummary(tuple(self.edges), tuple(self.warnings), self.returned)
