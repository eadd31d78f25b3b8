"""A plan as a Mermaid flowchart: one node for each operator, one arrow for each pair of them.

A dotted arrow leads to entities that are known only while the method runs. Effects of an entity on
itself are omitted. The text uses the part of the syntax that every version of Mermaid reads:
numbered nodes, quoted labels, character entities. Each application of a set is a subgraph. A workflow is a box with double sides, a stream a cylinder, a view a
parallelogram.
"""

from typing import Final

from penstock.dataflow.graph import (
    STREAMS,
    UNKNOWN_OPERATOR,
    Action,
    Operator,
    Origin,
    Plan,
    StreamKind,
    StreamOperator,
    ViewOperator,
)
from penstock.dataflow.rates import NO_RATES, Rates
from penstock.dataflow.summary import Link, links_of

_ENTITIES: Final = {"&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "#": "#35;"}
_SHORT: Final = {
    Action.READ: "reads ",
    Action.WRITE: "writes ",
    Action.CREATE: "",
    Action.DELETE: "",
    Action.EXISTS: "",
    Action.FIND: "",
    Action.CALL: "",
    Action.EMIT: "emits",
    Action.SEND: "sends ",
    Action.ASK: "asks ",
    Action.REPLY: "replies",
    Action.FEED: "",
}
_SHAPES: Final = {
    StreamKind.GENERATOR: ('("', '")'),
    StreamKind.STREAM: ('[("', '")]'),
    StreamKind.WORKFLOW: ('[["', '"]]'),
    StreamKind.SPLITTER: ('{{"', '"}}'),
    StreamKind.SEQUENCER: ('{{"', '"}}'),
    StreamKind.PORTAL: ('("', '")'),
}
_LINE: Final = "<br/>"


def plan_mermaid(plan: Plan, rates: Rates = NO_RATES) -> str:
    """Return the flowchart, with a newline at its end; an arrow also has its measured rate."""
    ids = {operator.name: f"n{index}" for index, operator in enumerate(plan.operators)}
    for operator in plan.stream_operators:
        ids[operator.path] = f"n{len(ids)}"
    for view in plan.views:
        ids[view.path] = f"n{len(ids)}"
    nodes = {operator.name: _node(operator) for operator in plan.operators}
    nodes |= {operator.path: _stream_node(operator) for operator in plan.stream_operators}
    nodes |= {view.path: _view_node(view) for view in plan.views}
    lines = ["flowchart LR"]
    for index, part in enumerate(plan.applications):
        lines.append(f'  subgraph a{index}["{_escape(part.name)}"]')
        lines += [f"    {ids[name]}{nodes.pop(name)}" for name in part.operators]
        lines.append("  end")
    lines += [f"  {ids[name]}{node}" for name, node in nodes.items()]
    arrows: dict[tuple[str, str, bool], list[str]] = {}
    for link in links_of(plan):
        if link.source.operator == link.target.operator and link.origin is Origin.SELF:
            continue
        pair = (link.source.operator, link.target.operator, link.origin.dynamic)
        arrows.setdefault(pair, []).append(_label(link, rates))
    if any(target == UNKNOWN_OPERATOR for _, target, _ in arrows):
        ids[UNKNOWN_OPERATOR] = "unknown"
        lines.append('  unknown{{"?"}}')
    for (source, target, dynamic), labels in arrows.items():
        arrow = "-.->" if dynamic else "-->"
        words = _LINE.join(filter(None, labels))
        label = f'|"{words}"|' if words else ""
        lines.append(f"  {ids[source]} {arrow}{label} {ids[target]}")
    lines += [f"  {ids[source]} --> {ids[view]}" for source, view in _feeds(plan)]
    return "\n".join(lines) + "\n"


def _feeds(plan: Plan) -> dict[tuple[str, str], None]:
    """Return the operators that feed a view, each with the view."""
    return {
        (source.operator, view.path): None
        for view in plan.views
        for table in view.tables
        for source in table.sources
    }


def _node(operator: Operator) -> str:
    name = _escape(operator.name)
    if operator.key is None:
        return f'(["{"effect " * operator.effect}{name}"])'
    return f'["{name}{_LINE}{_escape(operator.key.text)}"]'


def _stream_node(operator: StreamOperator) -> str:
    opening, closing = _SHAPES[operator.kind]
    words = [f"{operator.kind.value} {operator.name}", operator.events]
    words += [member.name for member in operator.members if not member.is_stream]
    return opening + _LINE.join(map(_escape, filter(None, words))) + closing


def _view_node(view: ViewOperator) -> str:
    words = [f"view {view.name}", view.target, *(table.name for table in view.tables)]
    return '[/"' + _LINE.join(map(_escape, words)) + '"/]'


def _label(link: Link, rates: Rates) -> str:
    words = _words(link), _escape(rates.of_link(link))
    return " ".join(filter(None, words))


def _words(link: Link) -> str:
    if link.action in (Action.FEED, Action.EMIT, Action.REPLY) or link.source.is_stream:
        return _escape(_stream_label(link))
    target = "" if link.target.is_whole and link.action is Action.ASK else link.target.member
    shown = f"{link.source.member}: {_SHORT[link.action]}{target}".rstrip()
    return _escape(f"{shown} (loop)" if link.looped else shown)


def _stream_label(link: Link) -> str:
    """Return the published stream, or the handler that emits; nothing if both ends say it."""
    source, target = link.source, link.target
    if link.action is Action.EMIT:
        return f"{source.member}: emits"
    if link.action is Action.REPLY:
        return f"replies: {target.member}"
    name = "" if source.is_whole else source.member.removeprefix(STREAMS)
    if link.action is Action.FEED:
        return name
    return f"{name}: sends {target.member}" if name else f"sends {target.member}"


def _escape(text: str) -> str:
    return "".join(_ENTITIES.get(character, character) for character in text)
