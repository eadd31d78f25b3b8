"""The compiled comparison of names and code finds the same changes as Python's."""

from array import array
from collections.abc import Callable
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.namespaces import _changed_names, _have_changed, _names_of
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
    versions = unknown(len(now))
    found = _changed_names(now, before, versions)
    assert core.changed_names(now, before, versions) == found
    assert core.changed_names(now, before, versions) == found, "also with the known versions"


def test_an_equal_object_is_another_object() -> None:
    """The comparison runs no code of a value's class."""
    for changed in (core.changed_names, _changed_names):
        assert changed([{"a": Equal()}], [(VALUES[0],)], unknown(1)) == [0]


def unknown(count: int) -> "array[int]":
    """Return the versions of dictionaries that were not looked at yet."""
    return array("Q", [0]) * count


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "setitem": lambda names: names.__setitem__("a", VALUES[1]),
    "update": lambda names: names.update(a=VALUES[1]),
    "union": lambda names: names.__ior__({"a": VALUES[1]}),
    "new": lambda names: names.setdefault("new", VALUES[1]),
    "del": lambda names: names.__delitem__("a"),
    "pop": lambda names: names.pop("a"),
    "popitem": lambda names: names.popitem(),
    "clear": lambda names: names.clear(),
    "order": lambda names: names.update(b=names.pop("b")),
    "global": lambda names: exec("global a; a = 1", names),
    "local": lambda names: exec("a = 1", {}, names),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_each_change_of_a_dictionary_is_found(change: Callable[[dict[str, Any]], object]) -> None:
    """Also if the version of the dictionary was known before the change."""
    names: dict[str, Any] = {"b": VALUES[3], "a": VALUES[0], "__builtins__": {}}
    values, versions = [tuple(names.values())], unknown(1)
    assert core.changed_names([names], values, versions) == []
    change(names)
    assert core.changed_names([names], values, versions) == [0]
    assert core.changed_names([names], values, versions) == [0], "a look changes nothing"


def test_the_first_name_of_a_dictionary_is_found() -> None:
    """CPython fills an empty dictionary in another way."""
    for change in ("setitem", "update", "union"):
        names: dict[str, Any] = {}
        versions = unknown(1)
        assert core.changed_names([names], [()], versions) == []
        CHANGES[change](names)
        assert core.changed_names([names], [()], versions) == [0]


class Owner:
    """A class whose names change, and so do those of its objects."""

    a = VALUES[0]


OWNERS = {"module": ModuleType("m"), "object": Owner(), "space": SimpleNamespace(), "class": Owner}


@pytest.mark.parametrize("owner", OWNERS.values(), ids=OWNERS)
def test_each_change_of_an_attribute_is_found(owner: Any) -> None:
    """Also by an assignment that CPython has specialized for the class of the object."""
    owner.a = VALUES[0]
    names = _names_of(owner) if owner is Owner else owner.__dict__
    values, versions = [tuple(names.values())], unknown(1)
    for _ in range(500):
        assert core.changed_names([names], values, versions) == []
        owner.a = VALUES[1]
        assert core.changed_names([names], values, versions) == [0]
        owner.a = VALUES[0]  # as before, at another version
    assert core.changed_names([names], values, versions) == []
    del owner.a
    assert core.changed_names([names], values, versions) == [0]


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
