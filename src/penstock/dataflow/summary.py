"""Links: the edges of one method, action and target on several lines, merged for display."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.dataflow.graph import Action, Edge, Endpoint, Origin, Plan, SourceLocation

_KNOWN_LAST = {origin: rank for rank, origin in enumerate(Origin)}


@dataclass(frozen=True, slots=True)
class Link:
    """Edges of one source, target and action.

    Attributes:
        origin: The origin that becomes known last.
        where: The lines of the edges, in order.
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
        """Whether an entity accesses its own attribute."""
        same = self.source.operator == self.target.operator and self.origin is Origin.SELF
        return same and self.action in (Action.READ, Action.WRITE)


def links_of(plan: Plan) -> tuple[Link, ...]:
    """Merge the edges of a plan into links, in the order of first appearance."""
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


def how_text(link: Link) -> str:
    """Return how a link happens: `by argument, in a loop, perhaps`. It is empty for the way of an atom."""
    if link.action in (Action.FEED, Action.REPLY):
        return ""
    is_named = link.action in (Action.EMIT, Action.ASK) and link.target.is_whole
    words = [] if is_named else [f"by {link.origin.value}"]
    if link.looped:
        words.append("in a loop")
    if link.conditional:
        words.append("perhaps")
    return ", ".join(words)


def places_text(places: Iterable[SourceLocation]) -> str:
    """Return lines as text: `shop/order.py:26, 31`."""
    lines: dict[str, list[str]] = {}
    for place in places:
        lines.setdefault(place.file, []).append(str(place.line))
    return "; ".join(f"{file}:{', '.join(numbers)}" for file, numbers in lines.items())
