"""Pages of entities that an index finds: they have the entities, and the order, of pages that look at all rows."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Flag
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import App, Entity, Principal, index, key, unique
from penstock.errors import Unhandled
from penstock.model.index_rows import LEAF_ENTRIES
from penstock.testing import Kit

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MOMENTS = [NOON, NOON.astimezone(timezone(timedelta(hours=2))), NOON + timedelta(hours=1), None]
AMOUNTS = [Decimal("1"), Decimal("1.0"), Decimal("-0"), Decimal("0"), Decimal("2.50")]


class Plain(Entity):
    name: str = key()
    owner: str | None = None
    due: int = 0
    amount: Decimal = Decimal(0)
    moment: datetime | None = None
    size: float = 0.0
    email: str | None = None


class Found(Entity):
    name: str = key()
    owner: str | None = None
    due: int = 0
    amount: Decimal = Decimal(0)
    moment: datetime | None = None
    size: float = 0.0
    email: str | None = unique(default=None)
    by_owner = index("owner", order="due")
    by_amount = index("amount")
    by_moment = index("moment")
    by_size_due = index("size", "due")


class Owned(Entity):
    name: str = key()
    owner: str = ""
    by_owner = index("owner")

    def allows(self, principal: Principal) -> bool:
        return principal.id == self.owner


app = App("pages", Plain, Found, Owned)

keys = st.lists(
    st.text("ab\0\x01é", min_size=1, max_size=4).filter(str.isprintable)
    | st.text("ab\0\x01", min_size=1, max_size=4),
    unique=True,
    max_size=12,
)
values = st.fixed_dictionaries(
    {},
    optional={
        "owner": st.sampled_from(["ada", "bob", "", None]),
        "due": st.integers(0, 2),
        "amount": st.sampled_from(AMOUNTS),
        "moment": st.sampled_from(MOMENTS),
        "size": st.sampled_from([0.0, -0.0, 1.5]),
    },
)


def names(kit: Kit, cls: type[Any], where: dict[str, Any], limit: int) -> list[str]:
    """Return the keys of all pages."""
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page = kit.page(cls, where=where, after=after, limit=limit)
        assert len(page.entities) <= limit
        found += [each.name for each in page.entities]
        after = page.after
    return found


@settings(max_examples=60)
@given(keys, st.data(), values, st.integers(1, 4))
def test_pages_are_those_of_all_rows(
    made: list[str], data: st.DataObject, where: dict[str, Any], limit: int
) -> None:
    """Values that are equal in more than one way, keys that begin with other keys, and NUL in them make no difference."""
    kit = Kit(app)
    for number, name in enumerate(made):
        given_values = data.draw(values)
        for cls in (Plain, Found):
            kit.call(cls.create, name, email=f"{number}@x", **given_values)
    assert names(kit, Found, where, limit) == names(kit, Plain, where, limit)
    for wanted in ({"email": "1@x"}, {"email": "1@x"} | where, {"email": None}, {"email": "none"}):
        assert names(kit, Found, wanted, limit) == names(kit, Plain, wanted, limit)


@pytest.mark.parametrize("cls", [Plain, Found])
def test_filter_finds_equal_values(cls: type[Any]) -> None:
    """However a caller writes a number or an instant, and with an index or without it."""
    kit = Kit(app)
    kit.call(cls.create, "a", amount=Decimal("1.0"), moment=NOON, size=-0.0)
    kit.call(cls.create, "b", amount=Decimal("2"), moment=None, size=2.0)
    for amount in ("1", "1.00", "1E0"):
        assert names(kit, cls, {"amount": Decimal(amount)}, 5) == ["a"]
    assert names(kit, cls, {"moment": MOMENTS[1]}, 5) == ["a"]
    assert names(kit, cls, {"size": 0.0, "due": 0}, 5) == ["a"]


class Right(Flag):
    READ = 1
    WRITE = 2


class Granted(Entity):
    name: str = key()
    right: Right = Right.READ
    by_right = index("right")


def test_filter_finds_the_sum_of_a_flag() -> None:
    """A page finds it by an index, as a handler does."""
    kit = Kit(App("grants", Granted))
    both = Right.READ | Right.WRITE
    kit.call(Granted.create, "a")
    kit.call(Granted.create, "b", right=both)
    assert names(kit, Granted, {"right": both}, 5) == ["b"]
    assert names(kit, Granted, {"right": Right(0)}, 5) == []


class Unlisted(dict[Any, Any]):
    """A state whose rows are only found by their keys."""

    def __iter__(self) -> Any:
        raise AssertionError("a page looked at all rows")


def test_page_of_an_index_looks_at_no_other_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind many entities of one value, whose entries have pages of two levels; the last page ends."""
    kit = Kit(app)
    many = 3 * LEAF_ENTRIES
    for number in range(many):
        kit.call(Found.create, f"{number:03}", owner="ada", amount=Decimal(number % 2), due=-number)
    monkeypatch.setattr(kit.runtime, "state", Unlisted(kit.runtime.state))
    every = [f"{number:03}" for number in range(many)]
    assert names(kit, Found, {"owner": "ada"}, 40) == every
    assert names(kit, Found, {"amount": Decimal("1.00")}, 7) == every[1::2]
    assert names(kit, Found, {"amount": Decimal(1), "due": -5}, 7) == ["005"]
    assert names(kit, Found, {"email": "none"}, 7) == []
    with pytest.raises(Unhandled, match="all rows"):
        names(kit, Found, {"due": 1}, 7)


def test_values_of_many_entities_in_another_order_take_all_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They would have to be sorted for each page."""
    kit = Kit(app)
    for number in range(4):
        kit.call(Found.create, f"{number}", owner="ada", due=-number)
    monkeypatch.setattr("penstock.model.index._SORTED_MAX", 3)
    assert names(kit, Found, {"owner": "ada"}, 3) == ["0", "1", "2", "3"]
    monkeypatch.setattr(kit.runtime, "state", Unlisted(kit.runtime.state))
    with pytest.raises(Unhandled, match="all rows"):
        names(kit, Found, {"owner": "ada"}, 3)


def test_class_with_a_right_reads_no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of its pages would tell how many hidden rows have a value."""
    kit = Kit(app)
    kit.call(Owned.create, "a", owner="ada")
    monkeypatch.setattr("penstock.model.index.Index.keys_behind", pytest.fail)
    page = kit.page(Owned, where={"owner": "ada"}, acting_as="ada")
    assert [each.name for each in page.entities] == ["a"]
