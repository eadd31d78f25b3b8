"""Names that differ only by case, which SQL ignores: a query that says one of them could mean each of them."""

import pytest

from penstock.errors import QueryError
from penstock.snapshots.column import unambiguous
from penstock.sql_view.query_guard import refuse_ambiguous


def test_no_name_of_several_is_kept() -> None:
    """Each of them has a number, which does not depend on the order of their declarations."""
    assert unambiguous(["price", "stock", "Price"]) == ["price_2", "stock", "Price_1"]
    assert unambiguous(["Price", "price", "stock"]) == ["Price_1", "price_2", "stock"]
    assert unambiguous(["price_2", "price", "Price"]) == ["price_2", "price_2_2", "Price_1"]


@pytest.mark.parametrize(
    ("schema", "tables", "names"),
    [
        ("main", ["Item_1", "item_2", "Order"], "Item_1 or item_2"),
        ("", ['tasks."w.T_1"', 'tasks."w.t_2"', "Item_1", "item_2"], "Item_1 or item_2"),
        (
            "streams",
            ['streams."Item_1"', 'streams."item_2"'],
            'streams."Item_1" or streams."item_2"',
        ),
    ],
)
def test_ambiguous_table_is_refused(schema: str, tables: list[str], names: str) -> None:
    """The error names each table that is meant."""
    with pytest.raises(QueryError, match=f"item is ambiguous.*{names}"):
        refuse_ambiguous(schema, "item", tables)


def test_numbers_of_a_user_are_no_ambiguity() -> None:
    """Classes that have numbers of their own are other names."""
    refuse_ambiguous("main", "item", ["Item_1", "Item_2"])
