"""A plan as text for a terminal: operators, effects of methods, cycles, warnings."""

from collections.abc import Sequence
from typing import Final

from penstock.dataflow.graph import (
    UNKNOWN_OPERATOR,
    Action,
    Endpoint,
    Method,
    Operator,
    Plan,
)
from penstock.dataflow.rates import NO_RATES, Rates
from penstock.dataflow.stream_text import (
    aligned_rows,
    count_text,
    stream_operator_lines,
    stream_target,
    with_rate,
)
from penstock.dataflow.summary import Link, links_of

_VERBS: Final = {
    Action.CALL: "calls",
    Action.READ: "reads",
    Action.WRITE: "writes",
    Action.CREATE: "creates",
    Action.DELETE: "deletes",
    Action.EXISTS: "asks for",
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
    noun = "function" if operator.key is None else "entity"
    lines = [f"{noun} {operator.name}  {operator.where.text}"]
    if operator.key is not None:
        lines.append(f"  {operator.key.text}  (key)")
        lines += [f"  {attribute.text}" for attribute in operator.attributes]
    for method in operator.methods:
        called = Endpoint(operator.name, method.name).text
        lines.append(with_rate(f"  {_signature(method)}", rates.of_method(called)))
        lines += _method([link for link in links if link.source.member == method.name], rates)
    return lines


def _signature(method: Method) -> str:
    return f"@readonly {method.text}" if method.readonly else method.text


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
