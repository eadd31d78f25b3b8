"""The streams, workflows and portals of a plan as text for a terminal."""

from collections.abc import Iterator, Sequence
from typing import Final

from penstock.dataflow.graph import (
    Action,
    Endpoint,
    Plan,
    StreamKind,
    StreamMember,
    StreamOperator,
    path_of,
)
from penstock.dataflow.rates import Rates
from penstock.dataflow.summary import Link, how_text, places_text

_NOTHING: Final = "Any"
"""The type of the events of a workflow whose last task publishes none."""

_VERBS: Final = {
    Action.FEED: "feeds",
    Action.ASK: "asks",
    Action.SEND: "sends",
    Action.REPLY: "reaches",
    Action.CREATE: "creates",
}


def count_text(plan: Plan) -> str:
    """Return the numbers of workflows, streams and portals: `2 workflows, 1 portal`; empty without streams."""
    counted = []
    for counted_kind in (
        StreamKind.WORKFLOW,
        StreamKind.STREAM,
        StreamKind.PORTAL,
        StreamKind.GENERATOR,
    ):
        count = sum(operator.kind is counted_kind for operator in plan.stream_operators)
        if count:
            counted.append(f"{count} {counted_kind.value}{'' if count == 1 else 's'}")
    return ", ".join(counted)


def stream_operator_lines(
    operator: StreamOperator, links: Sequence[Link], rates: Rates
) -> list[str]:
    """Return the lines of a stream, workflow, splitter, sequencer or portal.

    Args:
        links: The links that begin at it.
    """
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
        (_VERBS.get(link.action, f"{link.action.value}s"), _target(link), link)
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


def _target(link: Link) -> str:
    return stream_target(link.target) + " *" * link.origin.dynamic


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
