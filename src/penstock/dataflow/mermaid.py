"""A plan as a Mermaid flowchart: one node for each operator, one arrow for each pair of them.

A dotted arrow leads to entities that are known only while the method runs. Effects of an entity on
itself are omitted. The text uses the part of the syntax that every version of Mermaid reads:
numbered nodes, quoted labels, character entities.
"""

from typing import Final

from penstock.dataflow.graph import UNKNOWN_OPERATOR, Action, Operator, Origin, Plan
from penstock.dataflow.summary import Link, links_of

_ENTITIES: Final = {"&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "#": "#35;"}
_SHORT: Final = {
    Action.READ: "reads ",
    Action.WRITE: "writes ",
    Action.CREATE: "",
    Action.DELETE: "",
    Action.EXISTS: "",
    Action.CALL: "",
}
_LINE: Final = "<br/>"


def plan_mermaid(plan: Plan) -> str:
    """Return the flowchart, with a newline at its end."""
    ids = {operator.name: f"n{index}" for index, operator in enumerate(plan.operators)}
    lines = ["flowchart LR"]
    lines += [f"  {ids[operator.name]}{_node(operator)}" for operator in plan.operators]
    arrows: dict[tuple[str, str, bool], list[str]] = {}
    for link in links_of(plan):
        if link.source.operator == link.target.operator and link.origin is Origin.SELF:
            continue
        pair = (link.source.operator, link.target.operator, link.origin.dynamic)
        arrows.setdefault(pair, []).append(_label(link))
    if any(target == UNKNOWN_OPERATOR for _, target, _ in arrows):
        ids[UNKNOWN_OPERATOR] = "unknown"
        lines.append('  unknown{{"?"}}')
    for (source, target, dynamic), labels in arrows.items():
        arrow = "-.->" if dynamic else "-->"
        lines.append(f'  {ids[source]} {arrow}|"{_LINE.join(labels)}"| {ids[target]}')
    return "\n".join(lines) + "\n"


def _node(operator: Operator) -> str:
    name = _escape(operator.name)
    if operator.key is None:
        return f'(["{name}"])'
    return f'["{name}{_LINE}{_escape(operator.key.text)}"]'


def _label(link: Link) -> str:
    shown = f"{link.source.member}: {_SHORT[link.action]}{link.target.member}"
    return _escape(f"{shown} (loop)" if link.looped else shown)


def _escape(text: str) -> str:
    return "".join(_ENTITIES.get(character, character) for character in text)
