"""Scopes: which exist, and what each of them allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import App, RequestError, entity, key, stream, transactional
from penstock.errors import Forbidden
from penstock.gateway.auth.principal import (
    ANONYMOUS,
    Principal,
    Scope,
    check_scope,
    granted,
    parse_scope,
)


@entity
class Item:
    item_id: str = key()
    stock: int = 0

    def add(self, amount: int) -> int:
        self.stock += amount
        return self.stock


@entity
class Shelf:
    shelf_id: str = key()

    def clear(self) -> None:
        """Do nothing; it is only named."""


@transactional
def restock(amount: int) -> int:
    return amount


APP = App("principal", Item, Shelf, restock, stream("front-page", str), stream("back-page", str))
SCOPES = [
    *("*", "admin", "sql", "call", "read", "read:Item", "read:Shelf"),
    *(
        "call:Item",
        "call:Item.delete",
        "call:Item.add",
        "call:Item.create",
        "call:Shelf",
        "call:Shelf.clear",
    ),
    *("call:restock", "append", "append:front-page"),
]
RIGHTS = [
    *(("admin",), ("sql",), ("read", "Item"), ("read", "Shelf"), ("call", "", "restock")),
    *(("append", "front-page"), ("append", "back-page")),
    *(
        ("call", "Item", "delete"),
        ("call", "Item", "add"),
        ("call", "Item", "create"),
        ("call", "Shelf", "clear"),
    ),
]


def covers(scope: str, right: tuple[str, ...]) -> bool:
    """Say whether a scope holds a right: the grammar's words, part by part."""
    if scope == "*":
        return True
    kind, _, target = scope.partition(":")
    if right[-1] == "delete" and scope == "call:Item":
        return False
    named = target.split(".") if target else []
    return kind == right[0] and named == [one for one in right[1:] if one][: len(named)]


def may(principal: Principal, right: tuple[str, ...]) -> bool:
    try:
        match right:
            case ("call", entity_name, method):
                principal.require_call(entity_name, method)
            case ("read", entity_name):
                principal.require_read(entity_name)
            case ("append", stream_name):
                principal.require_append(stream_name)
            case ("sql",):
                principal.require_sql()
            case _:
                principal.require_admin()
    except Forbidden:
        return False
    return True


@given(st.frozensets(st.sampled_from(SCOPES)), st.sampled_from(RIGHTS))
def test_principal_may_do_what_one_of_its_scopes_covers(
    scopes: frozenset[str], right: tuple[str, ...]
) -> None:
    """A check equals a word-by-word reading of the grammar, for any set of scopes."""
    principal = Principal("p", frozenset(map(Scope, scopes)))
    assert may(principal, right) == any(covers(one, right) for one in scopes)


@given(st.text(max_size=30))
def test_text_outside_the_grammar_grants_nothing(text: str) -> None:
    """For any claims of a token, only words of the grammar become scopes, unchanged."""
    try:
        assert granted([text]) == {parse_scope(text)} == {text}
    except RequestError:
        assert granted([text]) == frozenset()


@pytest.mark.parametrize("scope", SCOPES)
def test_scope_of_the_application_is_taken(scope: str) -> None:
    """Each form of the grammar names something."""
    check_scope(parse_scope(scope), APP)


@pytest.mark.parametrize(
    ("scope", "hint"),
    [
        ("call:Itme", "did you mean Item?"),
        ("call:Item.ad", "did you mean add?"),
        ("call:Item.stock", "there is no method of Item 'stock'"),
        ("call:restok", "did you mean restock?"),
        ("call:restock.add", "has no entity class 'restock'"),
        ("read:restock", "has no entity class 'restock'"),
        ("read:Shelv", "did you mean Shelf?"),
        ("append:front-pag", "did you mean front-page?"),
    ],
)
def test_scope_of_nothing_is_refused_with_near_misses(scope: str, hint: str) -> None:
    """A misspelt name is found when the key is made, not when it is needed."""
    with pytest.raises(RequestError, match="scope") as refused:
        check_scope(parse_scope(scope), APP)
    assert hint in str(refused.value)


@pytest.mark.parametrize(
    "text",
    ["", "call:", "call:Item.", "read:Item.add", "admin:x", "CALL", "call Item", "**", "sql\n"],
)
def test_word_outside_the_grammar_is_no_scope(text: str) -> None:
    """The grammar is all that there is."""
    with pytest.raises(RequestError, match="is not a scope"):
        parse_scope(text)


def test_refusal_names_the_scope_wanted() -> None:
    """A refused caller reads which scope it needs, and as which principal it was taken."""
    reader = Principal("reader", frozenset({Scope("read")}))
    with pytest.raises(Forbidden, match=r"^reader lacks the scope call:Item\.add$"):
        reader.require_call("Item", "add")
    with pytest.raises(Forbidden, match=r"lacks the scope call:restock$"):
        reader.require_call("", "restock")
    with pytest.raises(Forbidden, match=r"lacks the scope sql$"):
        reader.require_sql()


def test_anonymous_may_do_everything() -> None:
    """Without keys nothing is refused."""
    assert all(may(ANONYMOUS, right) for right in RIGHTS)
