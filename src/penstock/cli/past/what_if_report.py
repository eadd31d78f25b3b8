"""The report of `penstock what-if`: the differences, for people and for programs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET

from penstock.base.difference import ElementDifference
from penstock.base.ids import epochs_text
from penstock.cli.output import counted, folding_table, show_deployments
from penstock.cli.past.trace import show_outside_calls
from penstock.cli.value_text import (
    ABSENT,
    difference_rows,
    finding_differences,
    value_text,
)
from penstock.engine.replay import ValueDifference
from penstock.engine.what_if import (
    SHOWN_MAX,
    DifferenceList,
    EntityDifference,
    ReplyDifference,
)
from penstock.history.rerun import outside_calls_json
from penstock.history.what_if import CascadeDifferences, CausedDifference, WhatIf
from penstock.snapshots.text import json_text
from penstock.sql_view.result_diff import ResultDiff, Row, pair_rows

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class QueryDifference:
    """A query, and the difference of its results."""

    query: str
    difference: ResultDiff


@dataclass(frozen=True, slots=True)
class WhatIfReport:
    """The content of the report.

    Attributes:
        what_if: The differences of replies and entities.
        keep: The directory in which the outcome is kept.
        shift: The number to subtract from an epoch of the journal for its epoch in `keep`.
    """

    what_if: WhatIf
    queries: Sequence[QueryDifference]
    keep: Path | None
    shift: int


def summary_of(report: WhatIfReport) -> str:
    """Return the first line: how many replies, entities, atoms and rows differ, and how many do not."""
    replies, cascades = report.what_if.replies, report.what_if.cascades
    rows = sum(query.difference.count for query in report.queries)
    counts = [
        counted(replies.differing.count, "reply", "replies"),
        counted(report.what_if.entities.count, "entity", "entities"),
        counted(sum(cascades.atoms.values()), "atom", "atoms"),
        counted(cascades.sent.count, "sent request", "sent requests"),
        counted(cascades.later.count, "later record", "later records"),
        counted(rows, "row of answers", "rows of answers"),
    ]
    differing = [count for count in counts if not count.startswith("0 ")]
    same = _requests(report.what_if.requests - replies.inserted.count - replies.differing.count)
    if not differing:
        return f"nothing differs: {same}, and every entity is the same"
    verb = "differs" if len(differing) == 1 and differing[0].startswith("1 ") else "differ"
    return f"{', '.join(differing)} {verb}; the rest, {same}, is the same"


def _requests(count: int) -> str:
    return counted(count, "request", "requests")


def show(report: WhatIfReport, console: "Console") -> None:
    """Print the report for people."""
    what_if = report.what_if
    console.print(summary_of(report), style="bold")
    rate = what_if.requests / what_if.spent_s if what_if.spent_s else 0.0
    console.print(
        f"{epochs_text(what_if.first, what_if.last)}: {_requests(what_if.requests)} in "
        f"{what_if.spent_s:.1f} s ({rate:,.0f}/s)"
    )
    if what_if.skipped:
        console.print(
            f"{_requests(what_if.skipped)} had exceeded a limit; the recorded outcome was used",
            style="yellow",
        )
    show_deployments(what_if.deployments, console)
    show_outside_calls(outside_calls_json(what_if.refused), console)
    replies = what_if.replies
    _show_replies("replies that differ", replies.differing, console)
    _show_replies("requests left out", replies.left_out, console)
    _show_replies("requests inserted", replies.inserted, console)
    entities = what_if.entities
    _show_entities("entities that differ", entities.changed, console)
    _show_entities("entities that are new", entities.created, console)
    _show_entities("entities that are gone", entities.deleted, console)
    _show_cascades(what_if.cascades, console)
    for query in report.queries:
        _show_query(query, console)
    if report.keep is not None:
        numbers = f"; epoch N is epoch N - {report.shift} there" if report.shift else ""
        console.print(f"kept in {report.keep}{numbers}")


def _show_replies(
    title: str, differences: DifferenceList[ReplyDifference], console: "Console"
) -> None:
    if differences.count:
        table = folding_table("epoch", "request", "call", "recorded", "what-if", title=title)
        for row in differences.shown:
            replies = [value_text(*reply) if reply else ABSENT for reply in row[3:]]
            table.add_row(str(row.epoch), row.request_id, row.call, *replies)
        _print(table, differences.count, console)


def _show_entities(
    title: str, differences: DifferenceList[EntityDifference], console: "Console"
) -> None:
    if differences.count:
        table = folding_table("entity", "element", "recorded", "what-if", title=title)
        for entity in differences.shown:
            for finding in entity.findings:
                for row in difference_rows(finding_differences(finding)):
                    table.add_row(entity.key, *row)
        _print(table, differences.count, console)


def _show_cascades(cascades: CascadeDifferences, console: "Console") -> None:
    for stream, count in sorted(cascades.atoms.items()):
        differing = counted(count, "atom differs", "atoms differ")
        console.print(f"stream {stream}: {differing}")
    _show_caused("events that differ", cascades.events, console)
    _show_caused("sent requests that differ", cascades.sent, console)
    _show_caused("later records that differ", cascades.later, console)


def _show_caused(
    title: str, differences: DifferenceList[CausedDifference], console: "Console"
) -> None:
    if differences.count:
        columns = ("epoch", "request", "place", "element", "recorded", "what-if")
        table = folding_table(*columns, title=title)
        for epoch, request_id, finding in differences.shown:
            for row in difference_rows(finding_differences(finding)):
                table.add_row(str(epoch), request_id, finding.place, *row)
        _print(table, differences.count, console)


def _show_query(query: QueryDifference, console: "Console") -> None:
    diff = query.difference
    console.print(query.query, style="bold")
    former, latter = diff.columns
    if former != latter:
        console.print(f"  columns were {', '.join(former)}")
        console.print(f"  columns are  {', '.join(latter)}")
    if not diff.count:
        shared = ", compared by the columns that both have" if former != latter else ""
        console.print(f"  the same {diff.same:,} rows{shared}")
        return
    table = folding_table(
        "recorded", "what-if", title=f"rows that differ; {diff.same:,} are the same"
    )
    for left, right in pair_rows(diff)[:SHOWN_MAX]:
        table.add_row(_row_text(former, left), _row_text(latter, right))
    _print(table, diff.count, console)


def _row_text(columns: Sequence[str], row: Row | None) -> str:
    if row is None:
        return ABSENT
    return ", ".join(
        f"{name} = {value_text(value)}" for name, value in zip(columns, row, strict=True)
    )


def _print(table: "Table", count: int, console: "Console") -> None:
    if count > SHOWN_MAX:
        table.caption = f"the first {SHOWN_MAX} of {count:,}"
    console.print(table)


def json_of(report: WhatIfReport) -> dict[str, Any]:
    """Return the report as plain data. Keys are stable."""
    what_if, cascades = report.what_if, report.what_if.cascades
    replies, entities = what_if.replies, what_if.entities
    keep = None if report.keep is None else {"data": str(report.keep), "shift": report.shift}
    return {
        "first": what_if.first,
        "last": what_if.last,
        "requests": what_if.requests,
        "skipped": what_if.skipped,
        "spent_s": what_if.spent_s,
        "outside": outside_calls_json(what_if.refused),
        "replies": _shown(replies.differing, _plain_reply),
        "left_out": _shown(replies.left_out, _plain_reply),
        "inserted": _shown(replies.inserted, _plain_reply),
        "entities": {
            "changed": _shown(entities.changed, _plain_entity),
            "created": _shown(entities.created, _plain_entity),
            "deleted": _shown(entities.deleted, _plain_entity),
        },
        "atoms": dict(sorted(cascades.atoms.items())),
        "events": _shown(cascades.events, _plain_caused),
        "sent": _shown(cascades.sent, _plain_caused),
        "later": _shown(cascades.later, _plain_caused),
        "sql": [_plain_query(query) for query in report.queries],
        "keep": keep,
        "deployments": list(what_if.deployments),
    }


def _shown(
    differences: DifferenceList[_T], plain: Callable[[_T], dict[str, Any]]
) -> dict[str, Any]:
    rows = [plain(row) for row in differences.shown]
    return {"count": differences.count, "truncated": differences.truncated, "shown": rows}


def _plain_reply(reply: ReplyDifference) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "epoch": reply.epoch,
        "request_id": reply.request_id,
        "call": reply.call,
    }
    plain |= {"recorded": _value(reply.recorded[0])} if reply.recorded else {}
    plain |= {"what_if": _value(reply.replayed[0])} if reply.replayed else {}
    return plain


def _plain_caused(caused: CausedDifference) -> dict[str, Any]:
    plain = {"epoch": caused.epoch, "request_id": caused.request_id, "place": caused.finding.place}
    return plain | {"part": caused.finding.attribute} | _plain_finding(caused.finding)


def _plain_entity(entity: EntityDifference) -> dict[str, Any]:
    findings = [
        {"attribute": finding.attribute} | _plain_finding(finding) for finding in entity.findings
    ]
    return {"entity": entity.key, "findings": findings}


def _plain_finding(finding: ValueDifference) -> dict[str, Any]:
    elements = finding_differences(finding)
    return {
        "recorded": _value(finding.recorded),
        "what_if": _value(finding.replayed),
        "differences": list(map(_plain_element, elements.shown)),
        "differences_left_out": elements.left_out,
    }


def _plain_element(element: ElementDifference) -> dict[str, Any]:
    plain: dict[str, Any] = {"path": element.path, "kind": element.kind}
    plain |= {} if element.before is UNSET else {"recorded": _value(element.before)}
    plain |= {} if element.after is UNSET else {"what_if": _value(element.after)}
    return plain


def _value(value: Any) -> msgspec.Raw:
    """Return a value as JSON, so that a value that JSON does not have cannot spoil the rest."""
    return msgspec.Raw(json_text(value).encode())


def _plain_query(query: QueryDifference) -> dict[str, Any]:
    diff = query.difference
    return {
        "query": query.query,
        "columns": {"recorded": diff.columns[0], "what_if": diff.columns[1]},
        "same": diff.same,
        "count": diff.count,
        "truncated": diff.count > SHOWN_MAX,
        "recorded": [[_value(value) for value in row] for row in diff.only_first[:SHOWN_MAX]],
        "what_if": [[_value(value) for value in row] for row in diff.only_second[:SHOWN_MAX]],
    }
