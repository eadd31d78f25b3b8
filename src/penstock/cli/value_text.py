"""Values and their differences as text for people: numbers, decimals and times without quotes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from penstock.base.difference import (
    ElementDifference,
    ElementDifferences,
    attribute_differences,
    element_differences,
)
from penstock.snapshots.text import json_text

if TYPE_CHECKING:
    from penstock.engine.replay import ValueDifference

ABSENT: Final = "-"
"""The text of a value that does not exist."""

_TEXT_MAX: Final = 400
_LARGE: Final = "…"
_MEANINGS: Final = frozenset({ABSENT, _LARGE, "null", "true", "false"})

Row = tuple[str, str, str]
"""The path of a difference, the former value and the latter value."""


SIDES: Final = ("element", "before", "after")
"""The titles of the columns of a `Row`."""


def value_text(value: Any) -> str:
    """Return a value as text of bounded length: text without quotes if it is clear, others as JSON."""
    if isinstance(value, str) and not _is_clear(value):
        return _json(value)
    return _bounded(value if isinstance(value, str) else json_text(value).strip('"'))


def difference_rows(differences: ElementDifferences) -> list[Row]:
    """Return a row for each difference, and a last row that counts the others."""
    rows = [_row(difference) for difference in differences.shown]
    if differences.left_out:
        rows.append((f"{differences.left_out:,} more", "", ""))
    return rows


def differences_of(document: dict[str, Any]) -> ElementDifferences:
    """Return the differences in a JSON object of a trace or a history."""
    elements = [ElementDifference(**element) for element in document["differences"]]
    return ElementDifferences(elements, document["differences_left_out"])


def deviation_text(deviations: list[dict[str, Any]]) -> str:
    """Return the deviations of another run from the stored values, in one line; empty without deviations."""
    if not deviations:
        return ""
    elements = [ElementDifference(**element) for element in deviations]
    rows = difference_rows(ElementDifferences(elements))
    given = ", ".join(f"{path} is {stored} and becomes {again}" for path, stored, again in rows)
    return f"running it again does not give the stored state: {given}"


def finding_differences(finding: "ValueDifference") -> ElementDifferences:
    """Return the elements in which two runs differ; all attributes if one run lacks the entity."""
    _, attribute, recorded, replayed = finding
    if not attribute and (recorded is None or replayed is None):
        before, after = recorded or {}, replayed or {}
        if isinstance(before, dict) and isinstance(after, dict):
            return attribute_differences(before, after)
    return element_differences(attribute, recorded, replayed)


def difference_text(differences: ElementDifferences) -> str:
    """Return differences in one line: `stock 5 → 7, tags[0] added red`."""
    texts = []
    for path, before, after in difference_rows(differences):
        match before, after:
            case "", "":
                texts.append(path)
            case "-", _:
                texts.append(f"{path} added {after}")
            case _, "-":
                texts.append(f"{path} removed {before}")
            case _:
                texts.append(f"{path} {before} → {after}")
    return ", ".join(texts)


def _row(element: ElementDifference) -> Row:
    sides = (element.before, element.kind == "added"), (element.after, element.kind == "removed")
    before, after = (_side(value, is_absent, value_text) for value, is_absent in sides)
    if before == after:  # a number and its text
        before, after = (_side(value, is_absent, _json) for value, is_absent in sides)
    return element.path, before, after


def _side(value: Any, is_absent: bool, text: Callable[[Any], str]) -> str:  # noqa: FBT001 -- a fact of the value
    if value is UNSET:
        return ABSENT if is_absent else _LARGE
    return text(value)


def _json(value: Any) -> str:
    return _bounded(json_text(value))


def _is_clear(text: str) -> bool:
    return text.isprintable() and bool(text) and text == text.strip() and text not in _MEANINGS


def _bounded(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"
