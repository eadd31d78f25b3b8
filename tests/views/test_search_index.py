"""Questions to a search index: words, conditions, counts, highlights, bounds and mistakes."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.client.results import FacetCount
from penstock.errors import RequestError
from penstock.model.target_choice import search
from penstock.views.search_index import SearchIndex, SearchQuery
from penstock.views.target import TableChange
from tests.views.search_rows import ORDERS, filled, found, item, order, position

ROWS = [
    item(
        "a",
        "Grüner Tee",
        brand="Y",
        price=Decimal("1.5"),
        stock=3,
        made=datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=UTC),
        tags='["hot", {"k": "leaf"}]',
        sold=True,
    ),
    item("b", "black tea <b>", brand="X & Y", price=Decimal("NaN"), stock=-1, sold=False),
    item("c", "tea pot", brand="X & Y", price=Decimal(-2), made=datetime(1, 1, 1, tzinfo=UTC)),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("catalogue")
    target = filled(folder, ROWS)
    orders = [order("o", place, f"cup {place}") for place in range(3)]
    target.apply(position(0), position(1), [TableChange(ORDERS, ["o"], orders)])
    target.close()
    return folder


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("tea", "bc"),
        ("TEE", "a"),
        ("gruner", "a"),
        ("grüner OR pot", "ac"),
        ("tea pot", "c"),
        ("tea -pot", "b"),
        ('"black tea"', "b"),
        ('"tea black"', ""),
        ("te*", "abc"),
        ("tea bl*", "b"),
        ("grü*", "a"),
        ("name:pot", "c"),
        ("brand:Y", "a"),
        ("tea stock:[-5 TO 0]", "b"),
        ("made:[2025-12-31T00:00:00Z TO *]", "a"),
        ("sold:true", "a"),
        ("nothing", ""),
    ],
)
def test_words_are_found(folder: Path, query: str, keys: str) -> None:
    """All words must be there, in any case and without accents; the language of tantivy is there."""
    assert found(folder, query, table="Item") == list(keys)


@pytest.mark.parametrize(
    ("filters", "keys"),
    [
        ({"brand": "X & Y"}, "bc"),
        ({"brand": ["Y", "Z"]}, "a"),
        ({"brand": {"!=": "Y"}}, "bc"),
        ({"name": "tea pot"}, "c"),
        ({"name": "tea"}, ""),
        ({"price": {"<": 0}}, "c"),
        ({"price": {">=": "-2", "<=": 1.5}}, "ac"),
        ({"price": "NaN"}, "b"),
        ({"stock": {">": -1}}, "a"),
        ({"stock": [3, -1]}, "ab"),
        ({"made": {">=": "2026-01-01T00:00:00.000005Z"}}, "a"),
        ({"made": {">": "2026-01-01T00:00:00.000005Z"}}, ""),
        ({"made": "0001-01-01T00:00:00Z"}, "c"),
        ({"tags": "leaf"}, "a"),
        ({"sold": False}, "b"),
        ({"brand": "X & Y", "stock": -1}, "b"),
    ],
)
def test_conditions_are_exact(folder: Path, filters: dict[str, Any], keys: str) -> None:
    """A condition compares whole values of a column, times to the microsecond, and all conditions hold."""
    assert found(folder, filters=filters, table="Item") == list(keys)


def test_pages_add_up(folder: Path) -> None:
    """Hits come best first; `offset` goes on where the former answer has ended, and `total` counts all."""
    index = SearchIndex(folder)
    pages = [index.search(SearchQuery(limit=2, offset=at)) for at in range(0, 8, 2)]
    assert [len(page.hits) for page in pages] == [2, 2, 2, 0]
    assert {page.total for page in pages} == {6}
    assert index.search(SearchQuery(limit=0)).hits == []
    best = index.search(SearchQuery(query="grüner OR tee OR tea")).hits[0]
    assert b"Tee" in bytes(best.row)


def test_values_are_counted(folder: Path) -> None:
    """A facet has the values of its column over all hits, with their numbers; parts of a list count each."""
    index = SearchIndex(folder)
    answer = index.search(
        SearchQuery(query="tea OR tee", facets=("brand", "sold", "tags"), limit=0)
    )
    assert answer.facets["brand"] == [FacetCount("X & Y", 2), FacetCount("Y", 1)]
    assert [*map(repr, answer.facets["sold"])] == [
        *map(repr, [FacetCount(value=False, count=1), FacetCount(value=True, count=1)])
    ]
    assert {each.value for each in answer.facets["tags"]} == {"hot", "leaf"}
    assert answer.facets == index.search(SearchQuery(query="tea OR tee", facets=("*",))).facets


def test_highlights_are_parts_of_the_text(folder: Path) -> None:
    """A highlight is the text in parts, of which each second one was found, so that no markup can be mistaken."""
    answer = SearchIndex(folder).search(SearchQuery(query="grüner OR black", highlight=True))
    assert [hit.highlights["name"] for hit in answer.hits] == [
        ["", "Grüner", " Tee"],
        ["", "black", " tea <b>"],
    ]


def test_highlights_of_long_texts_are_fragments(tmp_path: Path) -> None:
    """Of a long text the words around those that were found are shown, and of a short one all characters."""
    long = f"{'öl ' * 300}Grüner Tee!{' öl' * 300}"
    target = filled(tmp_path, [item("a", long), item("b", "¡Grüner Tee!")])
    answer = SearchIndex(tmp_path).search(SearchQuery(query='"grüner tee"', highlight=True))
    shown = [hit.highlights["name"] for hit in answer.hits]
    short, fragment = sorted(shown, key=lambda parts: len("".join(parts)))
    assert short == ["¡", "Grüner", " ", "Tee", "!"]
    assert fragment[1::2] == ["Grüner", "Tee"]
    assert "".join(fragment) in long
    assert len("".join(fragment)) <= 200
    target.close()


def test_the_same_name_with_another_kind_needs_the_table(folder: Path) -> None:
    """`price` is a number in one table and text in the other."""
    index = SearchIndex(folder)
    with pytest.raises(RequestError, match="name the table"):
        index.search(SearchQuery(filters={"price": 1}))
    assert index.search(SearchQuery(filters={"price": "1"}, table="open_orders")).total == 0
    assert found(folder, "Item.price:[0 TO 2]") == ["a"]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"query": "nam:x"}, "character 1: there is no column 'nam'; did you mean name"),
        ({"query": "tea (pot"}, r"character 9: expected '\)'"),
        ({"query": "te* pot"}, "character 3"),
        ({"query": "stock:many"}, "a valid integer"),
        ({"query": "-tea"}, "Only excluding"),
        ({"query": "/te.*/"}, "not allowed"),
        ({"query": "(" * 1_000}, "brackets"),
        ({"query": "a" * 3_000}, "2,000 characters"),
        ({"table": "Itm"}, "did you mean Item"),
        ({"limit": 1_001}, "from 0 to 1,000"),
        ({"limit": -1}, "from 0 to 1,000"),
        ({"offset": -1}, "offset"),
        ({"offset": 10_000}, "narrow the query"),
        ({"filters": {"stok": 1}}, "did you mean stock"),
        ({"filters": {"stock": "x"}}, "no value of this column"),
        ({"filters": {"stock": 2**70}}, "64 bits"),
        ({"filters": {"stock": {"~": 1}}}, "operator"),
        ({"filters": {"name": {"<": "x"}}}, "one number or time"),
        ({"filters": {"stock": [*range(101)]}}, "at most 100"),
        ({"filters": {"stock": None}}, "no value of this column"),
        ({"facets": ("stock",)}, "not counted"),
    ],
)
def test_mistakes_are_named(folder: Path, question: dict[str, Any], message: str) -> None:
    """A wrong question is refused with its place or its name, and nothing else happens."""
    with pytest.raises(RequestError, match=message):
        SearchIndex(folder).search(SearchQuery(**question))


def test_a_lenient_question_takes_what_it_can(folder: Path) -> None:
    """A lenient question passes over what cannot be read."""
    assert found(folder, "pot (", lenient=True) == ["c"]
    assert found(folder, "foo:bar", lenient=True) == []


def test_without_named_columns_all_text_is_found(tmp_path: Path) -> None:
    """`search()` finds the words of all columns of text, but not of the row key."""
    target = filled(tmp_path, [item("tea", "cup", brand="Green Tea")], choice=search())
    assert found(tmp_path, "tea") == ["tea"]
    assert found(tmp_path, "cup green") == ["tea"]
    assert found(tmp_path, filters={"_key": "tea"}) == ["tea"]
    target.close()
