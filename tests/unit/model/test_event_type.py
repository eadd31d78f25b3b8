"""Types of events: what they refuse, and which decoded values several handlers can share."""

from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest

from penstock import App, Emit, flow, stream, testing
from penstock.base.schema import is_immutable
from penstock.errors import Unencodable
from penstock.model.streams.event_type import EventType

pairs: EventType[Any] = EventType("stream pairs", tuple[str, int])


def test_a_tuple_of_plain_values_is_encoded_as_it_is() -> None:
    """A value of the type itself has the bytes that msgspec gives it."""
    assert pairs.encode(("a", 1)) == msgspec.msgpack.encode(("a", 1))


@pytest.mark.parametrize(
    "value", [("a", True), ("a", 1 << 70), ("a", 1, 2), ("a",), ["a", 1], ("\ud800", 1)]
)
def test_a_tuple_that_does_not_fit_is_refused(value: Any) -> None:
    """A `bool` is no `int`, an `int` has 64 bits at most, and the number of parts is fixed."""
    with pytest.raises(Unencodable, match="stream pairs"):
        pairs.encode(value)


def test_events_that_are_decoded_together_are_those_that_are_decoded_alone() -> None:
    """The array of events can have any length, also 0 and more than 16 bits can count."""
    encoded = [pairs.encode((str(number), number)) for number in range(70_000)]
    assert pairs.decode_all(encoded) == [pairs.decode(data) for data in encoded]
    assert pairs.decode_all([]) == []


def test_the_error_of_events_that_are_decoded_together_is_that_of_the_wrong_event() -> None:
    """The message does not depend on the way in which the events were decoded."""
    wrong = msgspec.msgpack.encode(("b", "2"))
    with pytest.raises(Unencodable) as alone:
        pairs.decode(wrong)
    with pytest.raises(Unencodable) as together:
        pairs.decode_all([pairs.encode(("a", 1)), wrong])
    assert str(together.value) == str(alone.value)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int, True),
        (Decimal | datetime | None, True),
        (tuple[str, tuple[UUID, ...]], True),
        (frozenset[int], True),
        (tuple[str, list[int]], False),
        (dict[str, int], False),
        (Any, False),
        (tuple, False),
    ],
)
def test_handlers_share_values_that_cannot_change(annotation: Any, expected: bool) -> None:  # noqa: FBT001
    """Scalars and tuples of them are shared; lists and types without a declaration are not."""
    assert is_immutable(annotation) is expected


lists = stream("lists", list[int])


class Sizes:
    """Publishes the size of a list."""

    def on_event(self, numbers: list[int], out: Emit[int]) -> None:
        out(len(numbers))


def test_a_function_that_changes_its_event_changes_nothing_for_the_task() -> None:
    """A list can change, so the function that gives the key and the handler get lists of their own."""
    kit = testing.Kit(App("changing", flow("sizes", lists).key(list.pop).task(Sizes).sink("out")))
    kit.append(lists, [[1, 2], [3]])
    assert kit.atoms("out") == [[2, 1]]
