"""What `penstock what-if` prints: what would differ, for people and for programs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table

from penstock.cli.trace import show_outside
from penstock.engine.what_if import (
    SHOWN_MAX,
    DifferenceList,
    EntityDifference,
    ReplyDifference,
)
from penstock.history.rerun import outside_calls_json
from penstock.history.what_if import WhatIf
from penstock.snapshots.text import json_text
from penstock.sql.result_diff import ResultDiff, Row, pair_rows

_NOTHING: Final = "-"
_TEXT_MAX: Final = 400


@dataclass(frozen=True, slots=True)
class Asked:
    """A query, and how its answers differ."""

    query: str
    difference: ResultDiff


@dataclass(frozen=True, slots=True)
class Told:
    """All that is printed.

    Attributes:
        found: What would differ.
        answers: The queries' answers.
        keep: Where what came out is kept.
        shift: What the numbers of its epochs lack of those of the journal.
    """

    found: WhatIf
    answers: Sequence[Asked]
    keep: Path | None
    shift: int


def summary_of(told: Told) -> str:
    """Return the first line: how much differs, and how much does not."""
    found = told.found
    replies = found.replies
    kinds = {"replies": replies.differing.count, "entities": found.entities.count}
    if told.answers:
        kinds["rows of answers"] = sum(one.difference.count for one in told.answers)
    one = {"replies": "reply", "entities": "entity", "rows of answers": "row of answers"}
    counted = [f"{n:,} {one[kind] if n == 1 else kind}" for kind, n in kinds.items() if n]
    same = _requests(found.requests - replies.inserted.count - replies.differing.count)
    if not counted:
        return f"nothing differs: {same}, and every entity is the same"
    verb = "differs" if sum(kinds.values()) == 1 else "differ"
    return f"{', '.join(counted)} {verb}; the rest, {same}, is the same"


def _requests(count: int) -> str:
    return f"{count:,} request{'' if count == 1 else 's'}"


def show(told: Told, console: Console) -> None:
    """Print what would differ, for a person."""
    found = told.found
    console.print(summary_of(told), style="bold")
    rate = found.requests / found.spent_s if found.spent_s else 0.0
    console.print(
        f"epochs {found.first} to {found.last}: {_requests(found.requests)} in "
        f"{found.spent_s:.1f} s ({rate:,.0f}/s)"
    )
    if found.skipped:
        console.print(
            f"{_requests(found.skipped)} had exceeded a limit; taken as recorded", style="yellow"
        )
    show_outside(outside_calls_json(found.refused), console)
    replies = found.replies
    _show_replies("replies that differ", replies.differing, console)
    _show_replies("requests left out", replies.left_out, console)
    _show_replies("requests inserted", replies.inserted, console)
    entities = found.entities
    _show_entities("entities that differ", entities.changed, console)
    _show_entities("entities that are new", entities.created, console)
    _show_entities("entities that are gone", entities.deleted, console)
    for one in told.answers:
        _show_answers(one, console)
    if told.keep is not None:
        numbers = f"; epoch N is epoch N - {told.shift} there" if told.shift else ""
        console.print(f"kept in {told.keep}{numbers}", markup=False)


def _show_replies(title: str, found: DifferenceList[ReplyDifference], console: Console) -> None:
    if found.count:
        table = Table("epoch", "request", "call", "recorded", "what-if", title=title)
        for one in found.shown:
            replies = [_text(*reply) if reply else _NOTHING for reply in one[3:]]
            table.add_row(str(one.epoch), one.request_id, one.call, *replies)
        _print(table, found.count, console)


def _show_entities(title: str, found: DifferenceList[EntityDifference], console: Console) -> None:
    if found.count:
        table = Table("entity", "attribute", "recorded", "what-if", title=title)
        for one in found.shown:
            for _, attribute, *values in one.findings:
                texts = [
                    _NOTHING if value is None and not attribute else _text(value)
                    for value in values
                ]
                table.add_row(one.key, attribute, *texts)
        _print(table, found.count, console)


def _show_answers(asked: Asked, console: Console) -> None:
    found = asked.difference
    console.print(f"{asked.query}", style="bold", markup=False)
    if not found.count:
        console.print(f"  the same {found.same:,} rows", markup=False)
        return
    former, latter = found.columns
    if former != latter:
        console.print(f"  columns were {', '.join(former)}", markup=False)
        console.print(f"  columns are  {', '.join(latter)}", markup=False)
    table = Table("recorded", "what-if", title=f"rows that differ; {found.same:,} are the same")
    for left, right in pair_rows(found)[:SHOWN_MAX]:
        table.add_row(_row_text(former, left), _row_text(latter, right))
    _print(table, found.count, console)


def _row_text(columns: Sequence[str], row: Row | None) -> str:
    if row is None:
        return _NOTHING
    return ", ".join(f"{name} = {_text(value)}" for name, value in zip(columns, row, strict=True))


def _text(value: Any) -> str:
    text = json_text(value)
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"


def _print(table: Table, count: int, console: Console) -> None:
    if count > SHOWN_MAX:
        table.caption = f"the first {SHOWN_MAX} of {count:,}"
    console.print(table, markup=False)


def json_of(told: Told) -> str:
    """Return what would differ as JSON."""
    found, replies, entities = told.found, told.found.replies, told.found.entities
    plain = {
        "first": found.first,
        "last": found.last,
        "requests": found.requests,
        "skipped": found.skipped,
        "spent_s": found.spent_s,
        "outside": outside_calls_json(found.refused),
        "replies": _plain_replies(replies.differing),
        "left_out": _plain_replies(replies.left_out),
        "inserted": _plain_replies(replies.inserted),
        "entities": {
            "changed": _plain_entities(entities.changed),
            "created": _plain_entities(entities.created),
            "deleted": _plain_entities(entities.deleted),
        },
        "sql": [_plain_answers(one) for one in told.answers],
        "keep": None if told.keep is None else {"data": str(told.keep), "shift": told.shift},
    }
    return json_text(plain)


def _plain_replies(found: DifferenceList[ReplyDifference]) -> dict[str, Any]:
    shown = []
    for one in found.shown:
        plain: dict[str, Any] = {
            "epoch": one.epoch,
            "request_id": one.request_id,
            "call": one.call,
        }
        plain |= {"recorded": _value(one.recorded[0])} if one.recorded else {}
        plain |= {"what_if": _value(one.replayed[0])} if one.replayed else {}
        shown.append(plain)
    return {"count": found.count, "truncated": found.truncated, "shown": shown}


def _plain_entities(found: DifferenceList[EntityDifference]) -> dict[str, Any]:
    shown = [
        {
            "entity": one.key,
            "findings": [
                {"attribute": attribute, "recorded": _value(recorded), "what_if": _value(replayed)}
                for _, attribute, recorded, replayed in one.findings
            ],
        }
        for one in found.shown
    ]
    return {"count": found.count, "truncated": found.truncated, "shown": shown}


def _value(value: Any) -> msgspec.Raw:
    """Return a value as JSON; one that JSON does not know shall not spoil all others."""
    return msgspec.Raw(json_text(value).encode())


def _plain_answers(asked: Asked) -> dict[str, Any]:
    found = asked.difference
    return {
        "query": asked.query,
        "columns": {"recorded": found.columns[0], "what_if": found.columns[1]},
        "same": found.same,
        "count": found.count,
        "truncated": found.count > SHOWN_MAX,
        "recorded": found.only_first[:SHOWN_MAX],
        "what_if": found.only_second[:SHOWN_MAX],
    }
