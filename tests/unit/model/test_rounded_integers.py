"""An integer that no float equals is refused where a float is declared, and never rounded."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from penstock import App, Entity, RequestError, key
from penstock.testing import Kit

ODD = 2**53 + 1
EVEN = 2**60


@dataclass
class Load:
    weight: float
    count: int = 0


class Scale(Entity):
    name: str = key()
    weight: float = 0.0

    def one(self, weight: float, count: int = 0, exact: Decimal = Decimal(0)) -> float:
        self.weight = weight
        return weight

    def load(self, load: Load) -> float:
        return load.weight

    def kept(self, either: int | float) -> int | float:
        return either

    def inside(self, *series: set[float]) -> None: ...

    def keys(self, sizes: dict[float, int]) -> None: ...

    def values(self, sizes: dict[int, float]) -> None: ...

    def rows(self, rows: list[tuple[int, float]]) -> None: ...

    def more(self, **more: float) -> None: ...


app = App("rounded", Scale)


@pytest.fixture(scope="module")
def kit() -> Kit:
    kit = Kit(app)
    kit.call.Scale.create("a")
    return kit


REFUSED: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "weight": ("one", (ODD,), {}),
    "weight by name": ("one", (), {"weight": -ODD}),
    "load.weight": ("load", (Load(ODD, ODD),), {}),
    "series[1]": ("inside", ({0.5}, {ODD, 3}), {}),
    "sizes (a key)": ("keys", ({ODD: 1},), {}),
    "sizes[...]": ("values", ({1: ODD},), {}),
    "rows[1][1]": ("rows", ([(ODD, 0.5), (ODD, ODD)],), {}),
    "x": ("more", (), {"x": ODD}),
}


@pytest.mark.parametrize("place", REFUSED)
def test_a_rounded_integer_is_refused_with_its_place(kit: Kit, place: str) -> None:
    """Python's calls and MessagePack of a client name the parameter, the place in it, and the number."""
    method, positional, named = REFUSED[place]
    with pytest.raises(RequestError) as caught:
        getattr(kit.call.Scale("a"), method)(*positional, **named)
    where, digits = place.removesuffix(" by name"), str(ODD)
    assert f"Scale.{method}: {where}: a float cannot hold " in str(caught.value)
    assert digits in str(caught.value)
    by_position, by_name = (
        msgspec.Raw(msgspec.msgpack.encode(each)) for each in (positional, named)
    )
    with pytest.raises(RequestError, match="a float cannot hold"):
        app.signature("Scale", method).of_caller(by_position, by_name)


def test_integers_that_are_kept_pass(kit: Kit) -> None:
    """Integers that floats equal, and integers of other places beside a float, are as they were given."""
    scale = kit.call.Scale("a")
    assert scale.one(EVEN, ODD, Decimal(ODD)) == EVEN
    assert scale.one(float(ODD), ODD) == float(ODD)
    assert scale.load(Load(float(ODD), ODD)) == float(ODD)
    assert scale.kept(ODD) == ODD
    scale.inside({EVEN, 0.5})
    scale.values({ODD: 0.5})
    scale.rows([(ODD, 0.5)])
