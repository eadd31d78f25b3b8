"""Edges that a reader takes for one: the same method doing the same to the same, on several lines.

Every form in which a plan is shown to people is made from these.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.dataflow.graph import Action, Edge, Endpoint, Origin, Plan, SourceLocation

_KNOWN_LAST = {origin: rank for rank, origin in enumerate(Origin)}


@dataclass(frozen=True, slots=True)
class Link:
    """Edges of one source, target and action.

    Attributes:
        looped: One of them is in a loop.
        conditional: All of them are conditional.
        origin: Of their origins, the one known last.
        where: Their lines, in order.
    """

    source: Endpoint
    target: Endpoint
    action: Action
    looped: bool
    conditional: bool
    origin: Origin
    where: tuple[SourceLocation, ...]

    @property
    def is_own(self) -> bool:
        """Whether an entity deals with its own attribute."""
        same = self.source.operator == self.target.operator and self.origin is Origin.SELF
        return same and self.action in (Action.READ, Action.WRITE)


def links_of(plan: Plan) -> tuple[Link, ...]:
    """Put together what a reader takes for one, in the order of first appearance."""
    groups: dict[tuple[Endpoint, Endpoint, Action, bool], list[Edge]] = {}
    for edge in plan.edges:
        itself = edge.source.operator == edge.target.operator and edge.origin is Origin.SELF
        groups.setdefault((edge.source, edge.target, edge.action, itself), []).append(edge)
    return tuple(_link(edges) for edges in groups.values())


def _link(edges: list[Edge]) -> Link:
    first = edges[0]
    return Link(
        first.source,
        first.target,
        first.action,
        looped=any(edge.looped for edge in edges),
        conditional=all(edge.conditional for edge in edges),
        origin=max((edge.origin for edge in edges), key=_KNOWN_LAST.__getitem__),
        where=tuple(sorted({edge.where for edge in edges})),
    )


def places_text(places: Iterable[SourceLocation]) -> str:
    """Name lines shortly: `shop/order.py:26, 31`."""
    lines: dict[str, list[str]] = {}
    for place in places:
        lines.setdefault(place.file, []).append(str(place.line))
    return "; ".join(f"{file}:{', '.join(numbers)}" for file, numbers in lines.items())
