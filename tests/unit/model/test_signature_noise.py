"""Arguments that come from outside as arbitrary bytes are accepted or refused, and break nothing."""

import contextlib
import inspect
import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock import App, RequestError, transactional
from tests.unit.client.all_types_app import app as wardrobe


@transactional
def add_up(first: int, *rest: int, **more: str) -> int:
    return first + sum(rest) + len(more)


summing = App("summing", add_up)
SIGNATURES = [
    summing.signature("", "add_up"),
    wardrobe.signature("", "echo"),
    wardrobe.signature("", "anything"),
    wardrobe.signature("Coat", "line"),
]


def packed(*positional: Any, **named: Any) -> bytes:
    return msgspec.msgpack.encode([positional, named])


@given(data=st.binary(max_size=60))
@example(b"\x92\x91\xa2\xff\xfe\x80")
@example(b"\x92\x91\xa2\xff\xfe\x81\xa5value\xa1\xff")
@example(b"\x92\xc0\x80")
@example(b"\x92\x91" + b"\x91" * 70_000)
@example(b"\x92\xdd\xff\xff\xff\xff\x80")
def test_any_messagepack_fits_or_is_refused(data: bytes) -> None:
    """Bytes that say they are arguments raise `RequestError`, if anything."""
    for signature in SIGNATURES:
        for body in (data, b"\x92\x91" + data + b"\x80"):
            with contextlib.suppress(RequestError):
                assert len(signature.of_msgpack(body)) == 2


@given(data=st.binary(max_size=60))
@example(b'["\xff"]')
@example(b'{"value": "\xff"}')
@example(b'{"\xff": 1}')
@example(b"[" * 70_000)
def test_any_json_fits_or_is_refused(data: bytes) -> None:
    """Bytes that say they are JSON raise `RequestError`, if anything."""
    for signature in SIGNATURES:
        for body in (data, b"[" + data + b"]"):
            with contextlib.suppress(RequestError):
                assert len(signature.of_json(body)) == 2


def test_any_number_of_arguments_costs_no_memory() -> None:
    """Callers who send ever other numbers of arguments leave nothing behind."""
    signature = summing.signature("", "add_up")
    for count in range(1, 300):
        assert signature.of_msgpack(packed(*range(count)))[0] == list(range(count))
    assert signature._decoders == {}


def test_wrong_argument_among_many_is_named() -> None:
    """A value that does not fit `*rest` is refused by name; so is a missing argument."""
    signature = summing.signature("", "add_up")
    with pytest.raises(RequestError, match=r"add_up: rest: Expected `int`, got `str`"):
        signature.of_msgpack(packed(1, 2, "three"))
    with pytest.raises(RequestError, match="first"):
        signature.of_msgpack(packed())


@transactional
def order(item: str, amount: int = 1, *, note: str) -> str:
    return f"{amount} {item} {note}"


ORDER = App("ordering", order).signature("", "order")


@pytest.mark.parametrize(
    ("positional", "named"),
    [
        ([], {"item": "a", "amount": 2, "note": "n"}),
        (["a"], {"amount": 2, "note": "n"}),
        (["a", 2], {"note": "n"}),
    ],
)
def test_arguments_by_name_are_accepted_in_each_form(
    positional: list[Any], named: dict[str, Any]
) -> None:
    """All arguments by name, and some of them by position, arrive as they were given."""
    given_ = (positional, named)
    decoded, more = ORDER.of_msgpack(msgspec.msgpack.encode(given_))
    assert (list(decoded), more) == given_
    decoded, more = ORDER.decode(*ORDER.encode(positional, named))
    assert (list(decoded), more) == given_
    assert ORDER.of_json(msgspec.json.encode(named)) == ([], named)


@pytest.mark.parametrize(
    ("positional", "named"),
    [
        ([], {"item": "a", "amount": 2}),
        ([], {"amount": 2, "note": "n"}),
        (["a"], {"item": "a", "amount": 2, "note": "n"}),
        (["a", 2], {}),
        ([], {"item": "a", "amount": 2, "note": "n", "more": 1}),
    ],
    ids=["no note", "no item", "item twice", "nothing by name", "unknown"],
)
def test_missing_and_double_arguments_are_refused_in_each_form(
    positional: list[Any], named: dict[str, Any]
) -> None:
    """A call that does not fit is refused when it is encoded and when it is decoded."""
    with pytest.raises(RequestError, match="order"):
        ORDER.encode(positional, named)
    with pytest.raises(RequestError, match="order"):
        ORDER.of_msgpack(msgspec.msgpack.encode((positional, named)))


def test_the_types_of_arguments_in_json_are_checked() -> None:
    """A value that does not fit is refused, also after others of its parameter have been read."""
    for _ in range(2):
        assert ORDER.of_json(b'["a", 2]') == (["a", 2], {})
        with pytest.raises(RequestError, match="amount"):
            ORDER.of_json(b'["a", "two"]')


@transactional
def open_to(first: int, second: int = 2, *, third: int, fourth: int = 4) -> None: ...


@transactional
def open_to_more(first: int, *rest: int, third: int = 3, **more: int) -> None: ...


@transactional
def by_place_only(first: int, /, second: int = 2) -> None: ...


@pytest.mark.parametrize("function", [open_to, open_to_more, by_place_only])
def test_arguments_fit_as_python_says(function: Any) -> None:
    """Every number of arguments by position with every set of names is accepted or refused as `inspect` does."""
    signature = App(function.__name__.replace("_", ""), function).signature("", function.__name__)
    shape = inspect.signature(function)
    names = ("first", "second", "third", "fourth", "unknown")
    for count in range(4):
        for chosen in itertools.product((False, True), repeat=len(names)):
            positional = [0] * count
            named = dict.fromkeys(itertools.compress(names, chosen), 0)
            try:
                shape.bind(*positional, **named)
            except TypeError:
                with pytest.raises(TypeError):
                    signature._bind(positional, named)
            else:
                signature._bind(positional, named)
