"""A plan as text for a terminal: operators, effects of methods, cycles, warnings."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from penstock.dataflow.graph import (
    STREAMS,
    UNKNOWN_OPERATOR,
    Action,
    Endpoint,
    Operator,
    Plan,
    StreamKind,
    StreamMember,
    StreamOperator,
    TableOfView,
    ViewOperator,
    path_of,
)
from penstock.dataflow.rates import NO_RATES, Rates
from penstock.dataflow.summary import Link, how_text, links_of, places_text

_NOTHING: Final = "Any"
"""The type of the events of a workflow whose last task publishes none."""

_STREAM_TEXT_VERBS: Final = {
    Action.FEED: "feeds",
    Action.ASK: "asks",
    Action.SEND: "sends",
    Action.REPLY: "reaches",
    Action.CREATE: "creates",
}


def count_text(plan: Plan) -> str:
    """Return the numbers of workflows, streams, portals and views: `2 workflows, 1 portal`; empty without them."""
    counted = []
    for counted_kind in (
        StreamKind.WORKFLOW,
        StreamKind.STREAM,
        StreamKind.PORTAL,
        StreamKind.GENERATOR,
    ):
        count = sum(operator.kind is counted_kind for operator in plan.stream_operators)
        if count:
            counted.append(_count(count, counted_kind.value))
    if plan.views:
        counted.append(_count(len(plan.views), "view"))
    return ", ".join(counted)


def stream_operator_lines(
    operator: StreamOperator, links: Sequence[Link], rates: Rates
) -> list[str]:
    """Return the lines of a stream, workflow, splitter, sequencer or portal."""
    events = f": {operator.events}" if operator.events else ""
    title = f"{operator.kind.value} {operator.name}{events}  {operator.where.text}"
    is_workflow = operator.kind is StreamKind.WORKFLOW
    measured = rates.of_workflow if is_workflow else rates.of_stream
    lines = [with_rate(title, measured(operator.name))]
    lines += [row[2:] for row in _rows(links, operator.path, rates)]
    for member in operator.members:
        rate = rates.of_stream(member.title) if member.is_stream else ""
        lines.append(with_rate(f"  {_member(member)}", rate))
        lines += _rows(links, member.name, rates)
    return lines


def view_lines(view: ViewOperator) -> list[str]:
    """Return the lines of a view: its target, and its tables with the operators that feed them."""
    personal = ", personal data" if view.personal else ""
    wide = max((len(table.name) for table in view.tables), default=0)
    return [
        f"view {view.name} in {view.target}{personal}  {view.where.text}",
        *(f"  table {table.name:<{wide}}  {_sources(table)}" for table in view.tables),
    ]


def _sources(table: TableOfView) -> str:
    if table.query:
        return f"answers {' '.join(table.query.split())}"
    sources = ", ".join(source_text(source) for source in table.sources)
    return f"rows of {sources}  {table.where.text}" if table.function else f"shows {sources}"


def source_text(source: Endpoint) -> str:
    """Return the text of an operator that feeds a table: `Order`, `stream payments`."""
    return f"stream {source.member.removeprefix(STREAMS)}" if source.is_stream else source.text


def with_rate(line: str, rate: str) -> str:
    """Return a line with a rate behind it, if there is one."""
    return f"{line}  [{rate}]" if rate else line


def _member(member: StreamMember) -> str:
    if not member.is_stream:
        return f"task {member.name}  {member.where.text}"
    events = "" if member.type == _NOTHING else f": {member.type}"
    return f"stream {member.title}{events}"


def _rows(links: Sequence[Link], member: str, rates: Rates) -> list[str]:
    """Return the lines of the links that begin at a member."""
    rows = (
        (
            _STREAM_TEXT_VERBS.get(link.action, f"{link.action.value}s"),
            stream_target(link.target) + " *" * link.origin.dynamic,
            link,
        )
        for link in links
        if link.source.member == member
    )
    return aligned_rows(rows, rates)


def aligned_rows(rows: Iterator[tuple[str, str, Link]], rates: Rates) -> list[str]:
    """Return a line for each link, in columns: the verb, the target, how it happens, its places, and its rate."""
    cells = [
        (verb, target, how_text(link), with_rate(places_text(link.where), rates.of_link(link)))
        for verb, target, link in rows
    ]
    wide = max((len(target) for _, target, _, _ in cells), default=0)
    how_wide = max((len(how) for _, _, how, _ in cells), default=0)
    return [
        f"    {verb:<9}{target:<{wide}}  {how:<{how_wide}}{'  ' * bool(how_wide)}{where}"
        for verb, target, how, where in cells
    ]


def stream_target(target: Endpoint) -> str:
    """Return the text of an end of a link: `workflow digest`, `task digest.Desk`, `Item.add`."""
    for operator_kind in StreamKind:
        beginning = path_of(operator_kind, "")
        if target.operator.startswith(beginning):
            name = target.operator.removeprefix(beginning)
            if target.operator == target.member:
                return f"{operator_kind.value} {name}"
            return f"task {name}.{target.member}"
    return target.text


_VERBS: Final = {
    Action.CALL: "calls",
    Action.READ: "reads",
    Action.WRITE: "writes",
    Action.CREATE: "creates",
    Action.DELETE: "deletes",
    Action.EXISTS: "asks for",
    Action.FIND: "finds by",
    Action.EMIT: "emits",
    Action.SEND: "sends",
    Action.ASK: "asks",
}
_LEGEND: Final = (
    "* which entity this is, only the run tells: its reference comes from state, from a call's",
    "  result, or from a computed key. A ? is something the compiler cannot name.",
)


def plan_text(plan: Plan, rates: Rates = NO_RATES) -> str:
    """Return the text, with a newline at its end, and with the rates that were measured."""
    links = links_of(plan)
    calls = sum(link.action is Action.CALL for link in links)
    summary = f"{plan.app}: {_count(len(plan.operators), 'operator')}, {_count(calls, 'call')}"
    parts = [["; ".join(filter(None, (summary, count_text(plan))))]]
    blocks = _blocks(plan, links, rates)
    for part in plan.applications:
        parts.append([f"application {part.name}"])
        parts += [blocks.pop(name) for name in part.operators]
    parts += blocks.values()
    parts += [view_lines(view) for view in plan.views]
    parts.append(_time_limits(plan))
    parts.append(_circles(plan))
    parts.append(_warnings(plan))
    if any(link.origin.dynamic for link in links):
        parts.append(list(_LEGEND))
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _blocks(plan: Plan, links: Sequence[Link], rates: Rates) -> dict[str, list[str]]:
    """Return the lines of each operator, by its name or path."""
    of: dict[str, list[Link]] = {}
    for link in links:
        of.setdefault(link.source.operator, []).append(link)
    entities = {each.name: _operator(each, of.get(each.name, ()), rates) for each in plan.operators}
    streams = {
        each.path: stream_operator_lines(each, of.get(each.path, ()), rates)
        for each in plan.stream_operators
    }
    return entities | streams


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _operator(operator: Operator, links: Sequence[Link], rates: Rates) -> list[str]:
    noun = "effect" if operator.effect else "function" if operator.key is None else "entity"
    lines = [f"{noun} {operator.name}  {operator.where.text}"]
    if operator.key is not None:
        lines.append(f"  {operator.key.text}  (key)")
        lines += [f"  {attribute.text}" for attribute in operator.attributes]
        lines += [f"  {index}" for index in operator.indexes]
        lines += [row[2:] for row in _rows(links, operator.name, rates)]  # to published tables
    for method in operator.methods:
        called = Endpoint(operator.name, method.name).text
        mark = "@internal " * method.internal + "@readonly " * method.readonly
        lines.append(with_rate(f"  {mark}{method.text}", rates.of_method(called)))
        lines += _method([link for link in links if link.source.member == method.name], rates)
    return lines


def _method(links: Sequence[Link], rates: Rates) -> list[str]:
    """Return the lines of a method's effects; those on its own attributes share a line."""
    lines = []
    for action in (Action.READ, Action.WRITE):
        own = [link.target.member for link in links if link.is_own and link.action is action]
        if own:
            lines.append(f"    {_VERBS[action]:<9}{', '.join(own)}")
    rows = ((_VERBS[link.action], _target(link), link) for link in links if not link.is_own)
    return lines + aligned_rows(rows, rates)


def _target(link: Link) -> str:
    target = link.target
    if link.action in (Action.CREATE, Action.DELETE, Action.EXISTS):
        name = target.operator
    elif link.action is Action.EMIT and not _nameless(link):
        name = stream_target(target)
    else:
        name = f"{UNKNOWN_OPERATOR}.{target.member}" if _nameless(link) else target.text
    return f"{name} *" if link.origin.dynamic else name


def _nameless(link: Link) -> bool:
    return link.target.operator == UNKNOWN_OPERATOR


def _time_limits(plan: Plan) -> list[str]:
    """Return the lines of what may stop all other requests for longer than the setting `limits.time_ms`."""
    limits = [f"  {name}  {time_ms / 1_000:g} s" for name, time_ms in plan.time_limits.items()]
    return ["time limits of their own", *limits] if limits else []


def _circles(plan: Plan) -> list[str]:
    if not plan.cycles:
        return ["no cycles"]
    return ["cycles", *(f"  {' → '.join(cycle)}" for cycle in plan.cycles)]


def _warnings(plan: Plan) -> list[str]:
    if not plan.warnings:
        return ["no warnings"]
    return ["warnings", *(f"  {warning.text}" for warning in plan.warnings)]


# Besides them each edge has `dynamic`, and the plan has `cycles`, so that a reader need not know how
# they follow from the rest.


def plan_json(plan: Plan, rates: Rates = NO_RATES) -> str:
    """Return the JSON, indented, with a newline at its end. Equal plans give equal text.

    Measured rates are the attribute `rates`.
    """
    document = msgspec.to_builtins(plan)
    for edge, shown in zip(plan.edges, document["edges"], strict=True):
        shown["dynamic"] = edge.dynamic
    document["cycles"] = plan.cycles
    if rates.over_s:
        document["rates"] = msgspec.to_builtins(rates)
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
