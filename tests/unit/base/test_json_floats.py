"""NaN and the infinities in JSON: each door gives and takes the same texts, and no float becomes null."""

import json
import math
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import App, Entity, key
from penstock.base.given_type import GivenType
from penstock.base.json_floats import decode_json
from penstock.base.lowering import lower_of
from penstock.base.schema import ENCODER
from penstock.base.words import value_of_word
from penstock.cli.output import json_line
from penstock.client.encoding import value_of
from penstock.client.operation import HttpResponse
from penstock.errors import RequestError
from penstock.gateway.responses import json_of
from penstock.model.signature import Signature
from penstock.snapshots.text import exact_json
from tests.unit.model.typed_values import Typed, types


class Point(NamedTuple):
    x: float
    name: str = "NaN"


class Sensor(pydantic.BaseModel):
    level: float


@dataclass
class Tree:
    weight: float
    branches: "list[Tree] | None" = None


class Item(Entity):
    code: str = key()
    weights: "dict[Item, float]"

    def put(self, weights: "dict[Item, list[float | None]]") -> None:
        self.weights = {item: each[0] or 0.0 for item, each in weights.items()}

    def swap(self, pairs: "dict[tuple[Item, date], int]") -> None: ...


def taken(annotation: Any, value: Any) -> bytes:
    """Return the bytes that are stored for a value."""
    lower = lower_of(annotation)
    return ENCODER.encode(lower(value) if lower else value)


@given(st.data())
def test_doors_give_and_take_the_same_text(data: st.DataObject) -> None:
    """What HTTP, a command and a history write is read as the value by a body, a word, and a client without types."""
    typed: Typed = data.draw(types)
    value = data.draw(typed.values)
    stored = taken(typed.annotation, value)
    plain = msgspec.msgpack.decode(stored)
    text = json_of(plain)
    response = HttpResponse(200, {"content-type": "application/json"}, text)
    for read in (
        decode_json(text, typed.annotation),
        value_of(response, typed.annotation),
    ):
        assert taken(typed.annotation, read) == stored
    assert json_of(json.loads(text)) == json_of(json.loads(json_line(plain)))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_float_has_one_text(number: float) -> None:
    """HTTP, SQL and commands write one text, and a word without quotes means the same."""
    text = json_of(number).decode()
    assert text == exact_json(number) == json_line(number)
    for word in (text, text.strip('"')):
        read = value_of_word(word, GivenType(float))
        assert type(read) is float
        assert json_of(read).decode() == text


def test_texts_of_other_types_stay_texts() -> None:
    """Only a place of a float takes the text; a union with a text keeps it, and other types refuse it."""
    for annotation, text, expected in (
        (float | str, '"NaN"', "NaN"),
        (list[float | None], '["Infinity", null]', [math.inf, None]),
        (dict[int, tuple[float, str]], '{"1": ["-Infinity", "NaN"]}', {1: (-math.inf, "NaN")}),
        (Point, '["Infinity", "NaN"]', Point(math.inf, "NaN")),
        (Sensor, '{"level": "Infinity"}', Sensor(level=math.inf)),
        (Tree, '{"weight": 1, "branches": [{"weight": "-Infinity"}]}', Tree(1, [Tree(-math.inf)])),
        (list[Tree] | dict[str, float], '{"a": "Infinity"}', {"a": math.inf}),
        (Any, '"NaN"', "NaN"),
    ):
        assert decode_json(text, annotation) == expected
    for other, text in (
        (int, '"NaN"'),
        (float, '"nan"'),
        (float, '"1.5"'),
        (Point, '{"x": "NaN"}'),
    ):
        with pytest.raises(msgspec.ValidationError):
            decode_json(text, other)


def test_references_as_keys_stay_references() -> None:
    """A dictionary whose keys are references takes the texts, too."""
    signature: Signature = App("floats", Item).entity("Item").methods["put"]
    (weights,), _ = signature.of_json(b'[{"tea": ["Infinity", null]}]')
    assert list(weights.values()) == [[math.inf, None]]
    assert list(weights) == [Item("tea")]
    swap = App("floats", Item).entity("Item").methods["swap"]
    (pairs,), _ = swap.of_json(b'[{"[\\"tea\\",\\"2026-01-02\\"]": 3}]')
    assert pairs == {(Item("tea"), date(2026, 1, 2)): 3}


def test_keys_that_are_no_texts_come_in_texts() -> None:
    """A caller writes a key as replies have it; a wrong key is named with the way to write it."""
    for annotation, text, expected in (
        (dict[Point, int], '{"[1.5,\\"a\\"]": 1}', {Point(1.5, "a"): 1}),
        (dict[bool, int], '{"true": 1, "false": 0}', {True: 1, False: 0}),
        (dict[int | None, int], '{"null": 1, "-2": 0}', {None: 1, -2: 0}),
        (dict[str | None, int], '{"null": 1}', {"null": 1}),
        (list[dict[tuple[int, ...], float]], '[{"[]": "NaN"}]', None),
    ):
        read = decode_json(text, annotation)
        assert read == expected or str(read) == "[{(): nan}]"
    signature: Signature = App("floats", Item).entity("Item").methods["swap"]
    with pytest.raises(RequestError, match=r"pairs \(a key\): .*write the key as JSON in a text"):
        signature.of_json(b'[{"tea": 1}]')


def test_a_deep_value_needs_no_stack() -> None:
    """A value with null that is nested as deeply as it can be decoded is written as before."""
    deep: Any = None
    for _ in range(400):
        deep = [deep]
    assert json_of(deep) == b"[" * 400 + b"null" + b"]" * 400


class Red(msgspec.Struct, tag="red"):
    """A leaf or a branch of a tree of two colours."""

    weight: float
    below: "Red | Black | None" = None


class Black(msgspec.Struct, tag="black"):
    """A leaf or a branch of a tree of two colours."""

    weight: float
    below: "Red | Black | None" = None


def test_deep_unions_take_no_time_that_doubles() -> None:
    """Each level of nested tagged classes is tried with its own class: a caller could stop a process by 40 levels."""
    given: dict[str, Any] = {"type": "black", "weight": "NaN"}
    for _ in range(60):
        given = {"type": "black", "weight": 1.0, "below": given}
    tree = decode_json(msgspec.json.encode(given), Red | Black)
    while tree.below is not None:
        assert (type(tree), tree.weight) == (Black, 1.0)
        tree = tree.below
    assert math.isnan(tree.weight)
