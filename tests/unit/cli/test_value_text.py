"""Values and differences are text that people read, and never control a terminal."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from penstock.base.difference import attribute_differences, element_differences
from penstock.cli.value_text import (
    difference_rows,
    difference_text,
    finding_differences,
    value_text,
)
from penstock.engine.replay import ValueDifference


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("12.50", "12.50"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("red tea", "red tea"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05Z"),
        (date(2026, 1, 2), "2026-01-02"),
        (Decimal("12.50"), "12.50"),
        (None, "null"),
        (math.nan, "NaN"),
        ([-math.inf, {"a": math.nan, "b": None}], '["-Infinity",{"a":"NaN","b":null}]'),
        ("null", '"null"'),
        ("", '""'),
        (" x", '" x"'),
        ("-", '"-"'),
        ("a\x1b[2J", '"a\\u001b[2J"'),
        (["a", 1], '["a",1]'),
        ("x" * 1_000, "x" * 400 + "…"),
    ],
)
def test_value_is_text_without_needless_quotes(value: Any, text: str) -> None:
    """Text that could be taken for something else keeps its quotes."""
    assert value_text(value) == text


def test_rows_name_the_elements() -> None:
    """A side without a value has a dash, a number is not taken for its text, the rest is counted."""
    before = {"items": [["tea", 3], ["mug", 1]], "price": "12.50", "code": 5}
    after = {"items": [["tea", 4]], "price": "13", "code": "5", "note": "x" * 20_000}
    assert difference_rows(attribute_differences(before, after)) == [
        ("items[0][1]", "3", "4"),
        ("items[1]", '["mug",1]', "-"),
        ("price", "12.50", "13"),
        ("code", "5", '"5"'),
        ("note", "-", "…"),
    ]
    many = element_differences("n", [0] * 103, [1] * 103)
    assert difference_rows(many)[-1] == ("3 more", "", "")


def test_differences_are_a_line() -> None:
    """Changed, added and removed elements are told apart."""
    found = attribute_differences({"stock": 5, "tags": ["a"]}, {"stock": 7, "tags": [], "new": 1})
    assert difference_text(found) == "stock 5 → 7, tags[0] removed a, new added 1"


def test_entity_of_one_run_has_all_attributes() -> None:
    """A finding without an attribute is an entity that one run lacks, or a reply."""
    lacking = finding_differences(ValueDifference("Item/i1", "", None, {"stock": 1}))
    assert difference_rows(lacking) == [("stock", "-", "1")]
    reply = finding_differences(ValueDifference("reply", "", [1, 2], [1, 3]))
    assert difference_rows(reply) == [("[1]", "2", "3")]
    assert difference_rows(finding_differences(ValueDifference("reply", "", None, 7))) == [
        ("", "null", "7")
    ]
