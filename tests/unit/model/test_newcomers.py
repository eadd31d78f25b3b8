"""Mistakes of newcomers: each message says what to do."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import pytest

import penstock
from penstock import App, DefinitionError, Entity, effect, emit, index, key, now, send, stream
from penstock.engine.failure import failure_of
from penstock.errors import OutsideTransaction, PenstockError, RequestError
from penstock.model.entity_type import EntityType
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

    def read_misspelt(self) -> Any:
        return self.titel

    def read_other_misspelt(self) -> Any:
        return Book("b2").titel

    def write_misspelt(self) -> None:
        self.titel = "x"

    def call_misspelt(self) -> Any:
        return Book("b2").by_nam()  # type: ignore[attr-defined]

    def find_misspelt(self) -> Any:
        return Book.by_titel("x")  # type: ignore[attr-defined]

    def read_unlike(self) -> Any:
        return self.weight  # type: ignore[attr-defined]


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
        (
            Book.read_misspelt,
            r"'Book' object has no attribute 'titel'; did you mean title\?",
        ),
        (Book.read_other_misspelt, r"'Book' object has no attribute 'titel'; did you mean title\?"),
        (
            Book.write_misspelt,
            r"no attribute titel; did you mean title\? Or declare it in the class",
        ),
        (Book.call_misspelt, r"has no attribute 'by_nam'; did you mean by_name\?"),
        (Book.find_misspelt, r"'Book' has no attribute 'by_titel'; did you mean by_title\?$"),
        (Book.read_unlike, "'Book' object has no attribute 'weight'$"),
    ],
)
def test_mistake_in_a_handler(method: Callable[[Book], Any], remedy: str) -> None:
    """The failure of the request has the remedy."""
    kit = Kit(app)
    kit.call(Book.create, "b1")
    kit.call(Book.create, "b2")
    with pytest.raises(PenstockError, match=remedy):
        kit.call(method, Book("b1"))


class Spy:
    """An object that notes each use of it."""

    used: ClassVar[list[str]] = []

    def __eq__(self, other: object) -> bool:
        self.used.append("compared")
        return False

    def __hash__(self) -> int:
        return hash("__reference__")

    def __bool__(self) -> bool:
        self.used.append("tested")
        return False


class SpyingType(type):
    def __getattribute__(cls, name: str) -> Any:
        Spy.used.append(name)
        return super().__getattribute__(name)

    def __instancecheck__(cls, _instance: object) -> bool:
        Spy.used.append("asked")
        return False


def hostile_owners() -> list[object]:
    """Return objects whose classes run code at any use, and pretend to be entities."""
    described = Book("b1").__reference__  # type: ignore[attr-defined]
    names: dict[Any, Any] = {Spy(): 1, "__reference__": Spy(), "title": 2}
    false = SpyingType("Book", (), names)
    own: Any = SpyingType(
        "Book", (), {"__reference__": described, "__class__": property(Spy.used.append)}
    )
    return [false(), false, own, own(), Spy(), None, described]


def test_names_near_a_missing_one_run_no_code() -> None:
    """The names of an exception's object are read as they are stored; another object than an entity has none."""
    owners = hostile_owners()
    Spy.used.clear()
    texts = [
        failure_of(AttributeError("'Book' object has no attribute 'titel'", obj=owner), 0, 0)
        for owner in owners
    ]
    assert Spy.used == []
    hints = [failure.message.partition("'titel'")[2] for failure in texts]
    assert hints == ["", "", "", "; did you mean title?", "", "", ""]


def test_names_near_a_missing_one_take_no_long_time() -> None:
    """A name of a million letters is compared with nothing, and a damaged description says nothing."""
    book, long = Book("b1"), "x" * 1_000_000
    error = AttributeError(f"'Book' object has no attribute '{long}'", obj=book)
    assert len(failure_of(error, 0, 0).message) == 2_000
    described: Any = EntityType(Book, "isbn", "here")
    described.attributes = 3
    damaged = type("Book", (), {"__reference__": described})()
    error = AttributeError("'Book' object has no attribute 'titel'", obj=damaged)
    assert failure_of(error, 0, 0).message == "'Book' object has no attribute 'titel'"


@pytest.mark.parametrize(
    ("mistake", "remedy"),
    [
        (lambda kit: kit.get("Book", "b1"), r"kit.get\(Book\('b1'\)\); kit.entity\('Book', 'b1'\)"),
        (lambda kit: kit.get(Book, "b1"), r"kit.get\(Book\('b1'\)\)"),
        (lambda kit: kit.get("Book"), r"write Item\('i1'\) for an entity"),
        (lambda kit: kit.call("Book.create", "b1"), "name the method itself"),
        (lambda kit: kit.call.book("b1"), r"did you mean Book\?"),
        (lambda kit: kit.call.Bok("b1"), r"no class and no function 'Bok'; did you mean Book\?"),
        (
            lambda kit: kit.call.Book.crate("b1"),
            r"there is no method of Book 'crate'; did you mean create\?",
        ),
        (
            lambda kit: kit.call.Book.create("b2", "x"),
            "Book.create takes its key by position and attributes by name",
        ),
        (lambda kit: kit.call.Book.create("b2", isbn="b3"), "Book.create got its key isbn twice"),
        (lambda _: Kit("library"), r"a kit runs an App, and not 'library'"),  # type: ignore[arg-type]
        (lambda _: Kit([app]), r"a kit runs an App"),  # type: ignore[arg-type]
    ],
)
def test_mistake_with_a_kit(mistake: Callable[[Any], object], remedy: str) -> None:
    """The error names the call that was meant."""
    with pytest.raises(PenstockError, match=remedy):
        mistake(Kit(app))


@pytest.mark.parametrize("method", ["create", "upsert", "update_or_create"])
def test_creation_with_a_value_that_would_be_lost(method: str) -> None:
    """A second value by position, and a second key, are refused before the log has the request."""
    kit = Kit(app)
    for arguments, named in ((("b1", "x"), {}), (("b1",), {"isbn": "b1"})):
        with pytest.raises(RequestError, match=rf"^Book.{method} "):
            getattr(kit.call.Book, method)(*arguments, **named)
    assert getattr(kit.call.Book, method)(isbn="b1", title="y") == Book("b1")
    assert getattr(kit.call.Book, method)("b2", title="y") == Book("b2")


def test_misspelt_parameter() -> None:
    """Each way of a call suggests the parameter; on the command line, a text with `=` is no value by accident."""
    remedy = r"Book.create has no parameter titel; did you mean title\?"
    create = app.signature("Book", "create")
    for mistake in (
        lambda: Kit(app).call.Book.create("b1", titel="x"),
        lambda: create.of_json(b'{"titel": "x"}'),
        lambda: create.parse(["titel=x"]),
    ):
        with pytest.raises(RequestError, match=remedy):
            mistake()
    assert create.parse(["a=b", "title=c=d"]) == (["a=b"], {"title": "c=d"})
    assert create.parse(['"titel=x"']) == (["titel=x"], {})


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


def test_dataclass_decorator_on_an_entity() -> None:
    """The only complaint names the decorator, and not @entity, which nobody has written."""

    @dataclass
    class Shelf(Entity):
        name: str = key()

    with pytest.raises(DefinitionError) as refused:
        App("library", Shelf)
    assert [text.partition(": ")[2] for text in refused.value.complaints] == [
        "Shelf was changed by a decorator above it, such as @dataclass; remove the decorator: an entity class needs none"
    ]


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
