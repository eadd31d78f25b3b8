"""Mistakes of newcomers: each message says what to do."""

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import penstock
from penstock import App, DefinitionError, Entity, effect, emit, index, key, now, send, stream
from penstock.errors import OutsideTransaction, PenstockError, RequestError
from penstock.model.repeatable import principal, random, request_id, uuid
from penstock.testing import Kit


@effect
def mail(to: str) -> None:
    """The application lacks it."""


notes = stream("notes", str)  # the application lacks it, too
lent = stream("lent", str)


class Book(Entity):
    isbn: str = key()
    title: str = ""

    by_title = index("title")

    def iterate(self) -> int:
        return len(list(Book))  # type: ignore[call-overload]

    def every(self) -> Any:
        return Book.all()  # type: ignore[attr-defined]

    def limit(self) -> Any:
        return Book.by_title("x", limit=3)  # type: ignore[arg-type]

    def by_name(self) -> Any:
        return Book.by_title(title="x")  # type: ignore[arg-type]

    def mail(self) -> None:
        send(mail, "ann")

    def note(self) -> None:
        emit(notes, "x")

    def note_by_name(self) -> None:
        emit("lent", "x")  # type: ignore[arg-type]

    def note_by_method(self) -> None:
        lent.emit("x")  # type: ignore[attr-defined]

    def invent(self) -> None:
        self.author = "x"

    def misspell(self) -> None:
        Book.create("c", titel="x")


app = App("library", Book, lent)


@pytest.mark.parametrize(
    ("method", "remedy"),
    [
        (Book.iterate, "a handler finds them by an index"),
        (Book.every, r"index\(…\) in the class, finds several"),
        (Book.limit, "does not know limit: it takes title by position, and first=20 or last=20"),
        (Book.by_name, "does not know title: it takes title by position"),
        (Book.mail, r"App must name the effect mail among its members: App\('name', …, mail\)"),
        (Book.note, r"test_newcomers.py:\d+: stream notes .* App must name it among its members"),
        (Book.note_by_name, "It takes the stream itself, not its name 'lent'"),
        (Book.note_by_method, r"a handler writes emit\(stream, event\)"),
        (Book.invent, "declare it in the class with its type, as in author: int = 0"),
        (Book.misspell, "does not know titel; it takes its key and title"),
    ],
)
def test_mistake_in_a_handler(method: Callable[[Book], Any], remedy: str) -> None:
    """The failure of the request has the remedy."""
    kit = Kit(app)
    kit.call(Book.create, "b1")
    with pytest.raises(PenstockError, match=remedy):
        kit.call(method, Book("b1"))


@pytest.mark.parametrize(
    ("mistake", "remedy"),
    [
        (lambda kit: kit.get("Book", "b1"), r"kit.get\(Book\('b1'\)\); kit.entity\('Book', 'b1'\)"),
        (lambda kit: kit.get(Book, "b1"), r"kit.get\(Book\('b1'\)\)"),
        (lambda kit: kit.get("Book"), r"write Item\('i1'\) for an entity"),
        (lambda kit: kit.call("Book.create", "b1"), "name the method itself"),
        (lambda kit: kit.call.book("b1"), r"did you mean Book\?"),
        (lambda _: Kit("library"), r"a kit runs an App, and not 'library'"),  # type: ignore[arg-type]
        (lambda _: Kit([app]), r"a kit runs an App"),  # type: ignore[arg-type]
    ],
)
def test_mistake_with_a_kit(mistake: Callable[[Any], object], remedy: str) -> None:
    """The error names the call that was meant."""
    with pytest.raises(PenstockError, match=remedy):
        mistake(Kit(app))


def test_kit_shows_a_class_by_its_name_or_itself() -> None:
    """`entity` and `entities` take the class itself, too, and refuse one that the application lacks."""
    kit = Kit(app)
    kit.call(Book.create, "b1", title="x")
    assert kit.entity(Book, "b1") == kit.entity("Book", "b1") == {"isbn": "b1", "title": "x"}
    assert kit.entities(Book) == kit.entities("Book") == {"b1": {"isbn": "b1", "title": "x"}}

    class Other(Entity):
        name: str = key()

    with pytest.raises(RequestError, match="Other is not part of the application library"):
        kit.entities(Other)


class Loose:
    name: str = key()


def plain() -> None:
    """A function without a mark."""


@pytest.mark.parametrize(
    ("members", "complaint"),
    [
        (([Book],), r"test_newcomers.py:\d+: .*; name the members one by one"),
        (("Book",), r"test_newcomers.py:\d+: 'Book' .*; name the class or the function itself"),
        ((Loose,), r"; if it is an entity, write class Loose\(Entity\)"),
        ((plain,), "; if requests call it, write @transactional above it"),
        ((Book("b1"),), "; name its class, Book"),
        ((3,), r"test_newcomers.py:\d+: 3 is neither"),
    ],
)
def test_object_that_cannot_be_a_member(members: tuple[Any, ...], complaint: str) -> None:
    """The complaint has a place and the remedy."""
    with pytest.raises(DefinitionError, match=complaint):
        App("library", *members)


def test_application_without_a_name() -> None:
    """The complaint shows the form."""
    with pytest.raises(DefinitionError, match=r"\.py:\d+: App takes its name first: App\('shop'"):
        App(Book)  # type: ignore[arg-type]


def test_mark_without_parentheses_or_type() -> None:
    """A mark that would be lost is a complaint, and the only one."""

    class Bare(Entity):
        name: str = key  # type: ignore[assignment]

    class Untyped(Entity):
        name: str = key()
        email = penstock.unique()

    with pytest.raises(DefinitionError) as refused:
        App("library", Bare, Untyped)
    assert [text.partition(": ")[2] for text in refused.value.complaints] == [
        "Bare.name = key lacks parentheses: key()",
        "Untyped.email is marked, and has no type; write one, as in email: str = …",
    ]


@pytest.mark.parametrize("function", [now, random, uuid, request_id, principal])
def test_fact_of_a_request_outside_of_it(function: Callable[[], object]) -> None:
    """The error says that a request must run, and names the function."""
    with pytest.raises(OutsideTransaction, match=rf"^{function.__name__}\(\) is about the request"):
        function()


def test_client_from_the_inner_package() -> None:
    """The import names the right one; other names are absent as in every module."""
    module: ModuleType = importlib.import_module("penstock.client")
    with pytest.raises(ImportError, match="from penstock import Client"):
        exec("from penstock.client import Client", {})
    assert not hasattr(module, "Nothing")
