"""The compiled comparison of names and code finds the same changes as Python's."""

from types import FunctionType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.namespaces import _changed_names, _have_changed
from penstock.native.choice import core
from tests.native_build import needs_compiled

VALUES = [object() for _ in range(4)]
values = st.lists(st.sampled_from(VALUES), max_size=5)


class Equal:
    """An object that calls itself equal to everything."""

    def __eq__(self, _: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


@pytest.fixture(autouse=True)
def _compiled() -> None:
    needs_compiled()


@given(st.lists(st.tuples(values, values), max_size=4))
def test_changed_names_are_those_of_python(pairs: list[tuple[list[Any], list[Any]]]) -> None:
    """A dictionary has changed if its values, in order, are other objects than before."""
    now = [dict(enumerate(one)) for one, _ in pairs]
    before = [tuple(one) for _, one in pairs]
    assert core.changed_names(now, before) == _changed_names(now, before)


def test_an_equal_object_is_another_object() -> None:
    """The comparison runs no code of a value's class."""
    for changed in (core.changed_names, _changed_names):
        assert changed([{"a": Equal()}], [(VALUES[0],)]) == [0]


def first(text: str = "a", *, more: str = "b") -> str:
    return text + more


def second() -> str:
    return "c"


@pytest.mark.parametrize("part", [None, "__code__", "__defaults__", "__kwdefaults__"])
def test_changed_code_is_that_of_python(part: str | None) -> None:
    """Code and defaults are parts of a function's meaning."""
    functions = [
        FunctionType(each.__code__, globals(), each.__name__, each.__defaults__)
        for each in (first, second)
    ]
    remembered = [
        [getattr(each, name) for each in functions]
        for name in ("__code__", "__defaults__", "__kwdefaults__")
    ]
    if part is not None:
        other: Any = {"__code__": second.__code__, "__defaults__": ("d",)}.get(part, {"more": "e"})
        setattr(functions[0], part, other)
    for have_changed in (core.have_changed, _have_changed):
        assert have_changed(functions, *remembered) is (part is not None)
