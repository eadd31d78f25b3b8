"""Definitions that would let calls share a value, or processes disagree about an order, are refused."""

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from penstock import App, DefinitionError, entity, key, transactional


@dataclass
class Open:
    number: int = 0


@dataclass(frozen=True)
class Half:
    numbers: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Closed:
    number: int | None = None


@dataclass(frozen=True, eq=False)
class Placed:
    number: int = 0


@pytest.mark.parametrize(
    ("annotation", "default"), [(Open, Open()), (tuple[Half, ...], (Half(),)), (Half, Half())]
)
def test_default_that_calls_could_change_is_refused(annotation: Any, default: Any) -> None:
    """A default that is or holds a mutable value would be shared by all calls."""

    def root(one: Any = default) -> None: ...

    root.__annotations__["one"] = annotation
    with pytest.raises(DefinitionError, match="all calls would share the default"):
        App("sharing", transactional(root))


def test_default_that_nothing_changes_is_accepted() -> None:
    """A frozen dataclass, a tuple or a scalar may be a default."""

    @transactional
    def root(one: Closed = Closed(), two: tuple[int, str] = (1, "a")) -> None: ...

    assert App("sharing", root).functions


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        (set[str | None], "None in a set"),
        (frozenset[tuple[int, str | None]], "None in a set"),
        (list[set[Closed]], "None in a set"),
        (set[Literal["a", None]], "None in a set"),
        (set[Placed], "compares by address"),
    ],
)
def test_set_without_an_order_is_refused(annotation: Any, why: str) -> None:
    """A stored set whose members have addresses as hashes would iterate otherwise in each process."""

    class Bag:
        name: str = key()

    Bag.__annotations__["content"] = annotation
    with pytest.raises(DefinitionError, match=why):
        App("sharing", entity(Bag))
