"""Errors of an application are reported when it is built: all at once, with file and line."""

import importlib
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Protocol

import pytest

from penstock import App, DefinitionError, Entity, key
from penstock.testing import Kit

HEADER = """
from __future__ import annotations
import abc, asyncio, dataclasses, enum, functools, typing
from datetime import *
from decimal import Decimal
from typing import *
from uuid import UUID
from penstock import App, entity, key, limit, migrate, portal, readonly, route, transactional
"""


class Build(Protocol):
    def __call__(self, source: str, name: str = ..., header: str = ...) -> ModuleType: ...


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """Write a module and import it, so that its source can be read like a user's."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(source: str, name: str = "defined", header: str = HEADER) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(header + textwrap.dedent(source))
        importlib.invalidate_caches()
        sys.modules.pop(name, None)
        return importlib.import_module(name)

    return make


def complaints(build: Build, source: str) -> tuple[str, ...]:
    with pytest.raises(DefinitionError) as caught:
        build(source)
    return caught.value.complaints


CASES = {
    "no key": ("@entity\nclass E:\n  x: int", "E has no key"),
    "two keys": ("@entity\nclass E:\n  x: str = key()\n  y: str = key()", "two keys, x and y"),
    "unhashable key": ("@entity\nclass E:\n  x: list[str] = key()", "E.x: list[str] cannot be a key"),
    "float key": ("@entity\nclass E:\n  x: float = key()", "E.x: float cannot be a key"),
    "optional key": ("@entity\nclass E:\n  x: str | None = key()", "cannot be a key"),
    "entity key": (
        "@entity\nclass F:\n  x: str = key()\n@entity\nclass E:\n  x: F = key()\nextra = [F]",
        "F cannot be a key",
    ),
    "unknown type": ("@entity\nclass E:\n  k: str = key()\n  x: Nope", "E.x: unknown type 'Nope'"),
    "no type": ("@entity\nclass E:\n  k: str = key()\n  x: 5 + 5", "E.x: 10 is not a type"),
    "syntax": ("@entity\nclass E:\n  k: str = key()\n  x: 'list['", "E.x: "),
    "unstorable": ("@entity\nclass E:\n  k: str = key()\n  x: object", "object is not a type that can"),
    "inside": ("@entity\nclass E:\n  k: str = key()\n  x: list[complex]", "complex is not a type"),
    "union": ("@entity\nclass E:\n  k: str = key()\n  x: str | datetime", "more than one str-like"),
    "reference union": ("@entity\nclass E:\n  k: str = key()\n  x: E | str", "E.x: "),
    "enum": (
        "class C(enum.Enum):\n  A = 1.5\n@entity\nclass E:\n  k: str = key()\n  x: C",
        "E.x: ",
    ),
    "dataclass": (
        "@dataclasses.dataclass\nclass D:\n  y: range\n"
        "@entity\nclass E:\n  k: str = key()\n  x: D",
        "E.x: D.y: range is not a type",
    ),
    "bad default": ("@entity\nclass E:\n  k: str = key()\n  x: int = 'a'", "E.x: the default does not fit"),
    "none default": ("@entity\nclass E:\n  k: str = key()\n  x: int = None", "E.x: the default"),
    "wrong kind of default": ("@entity\nclass E:\n  k: str = key()\n  x: list[int] = ()", "E.x: the default"),
    "big default": ("@entity\nclass E:\n  k: str = key()\n  x: int = 2**64", "E.x: the default"),
    "async": ("@entity\nclass E:\n  k: str = key()\n  async def f(self): pass", "E.f is async"),
    "async generator": (
        "@entity\nclass E:\n  k: str = key()\n  async def f(self):\n    yield 1",
        "E.f is async",
    ),
    "async helper": ("@entity\nclass E:\n  k: str = key()\n  async def _f(self): pass", "E._f is async"),
    "async readonly": (
        "@entity\nclass E:\n  k: str = key()\n  @readonly\n  async def f(self): pass",
        "E.f is async",
    ),
    "async function": (
        "@transactional\nasync def f(): pass\n@entity\nclass E:\n  k: str = key()\nextra = [f]",
        "f is async",
    ),
    "generator": ("@entity\nclass E:\n  k: str = key()\n  def f(self): yield 1", "E.f is a generator"),
    "readonly generator": (
        "@entity\nclass E:\n  k: str = key()\n  @readonly\n  def f(self): yield 1",
        "E.f is a generator",
    ),
    "generator function": (
        "@transactional\ndef f(): yield 1\nextra = [f]\nE = f",
        "f is a generator, which cannot be a reply",
    ),
    "static method": (
        "@entity\nclass E:\n  k: str = key()\n  @staticmethod\n  def f(x: int): pass",
        "E.f is a staticmethod, which no request can call; write a function with @transactional",
    ),
    "class method of a mixin": (
        "class M:\n  @classmethod\n  def f(cls): pass\n@entity\nclass E(M):\n  k: str = key()",
        "E.f is a classmethod, which no request can call",
    ),
    "marked static method": (
        "@entity\nclass E:\n  k: str = key()\n  @staticmethod\n  @transactional\n  def f(): pass",
        "E.f is a staticmethod",
    ),
    "partial method": (
        "@entity\nclass E:\n  k: str = key()\n  def _f(self, x: int): pass\n"
        "  f = functools.partialmethod(_f, 1)",
        "E.f is a partialmethod, which no request can call; write a method",
    ),
    "single dispatch": (
        "@entity\nclass E:\n  k: str = key()\n  @functools.singledispatchmethod\n  def f(self, x): pass",
        "E.f is a singledispatchmethod, which no request can call",
    ),
    "cached method": (
        "@entity\nclass E:\n  k: str = key()\n  @functools.cache\n  def f(self): pass",
        "E.f is a _lru_cache_wrapper, which no request can call",
    ),
    "cached property": (
        "@entity\nclass E:\n  k: str = key()\n  @functools.cached_property\n  def f(self): pass",
        "E.f is a cached_property, which no request can call; use property",
    ),
    "async property": (
        "@entity\nclass E:\n  k: str = key()\n  @property\n  async def f(self): pass",
        "E.f is async",
    ),
    "call": (
        "@entity\nclass E:\n  k: str = key()\n  def __call__(self): pass",
        "E.__call__ serves no request, because it has no name",
    ),
    "overloads alone": (
        "@entity\nclass E:\n  k: str = key()\n  @overload\n  def f(self): ...\n"
        "  @overload\n  def f(self, x: int): ...",
        "E.f has overloads and no implementation",
    ),
    "migration inside": (
        "@entity\nclass E:\n  k: str = key()\n  @migrate(int, since=2)\n  def f(old): pass",
        "E.f is marked @migrate; write it as a function outside of the class",
    ),
    "private limit": (
        "@entity\nclass E:\n  k: str = key()\n  @limit('1/s')\n  def _f(self): pass",
        "E._f is marked @limit and serves no request",
    ),
    "private route": (
        "@entity\nclass E:\n  k: str = key()\n  @route('GET /x')\n  @readonly\n  def _f(self): pass",
        "E._f is marked @route and serves no request",
    ),
    "limited property": (
        "@entity\nclass E:\n  k: str = key()\n  @property\n  @limit('1/s')\n  def f(self): pass",
        "E.f is a property, and @limit is for requests",
    ),
    "portal of an entity": (
        "p = portal('p', int, int)\n@entity\nclass E:\n  k: str = key()\n"
        "  @p.reply\n  def f(self, x: int) -> int: return x",
        "E.f replies to a portal, which only the task of a workflow does",
    ),
    **{
        f"{mark} on a {thing}": (
            f"class E:\n  @{mark}\n  @{thing}\n  def f(self): pass",
            f"@{mark.partition('(')[0]} marks a method or a function, and not a {thing}",
        )
        for mark in ["readonly", "transactional", "limit('1/s')", "route('GET /x')", "migrate(int, since=2)"]
        for thing in ["property", "classmethod", "staticmethod"]
    },
    **{
        f"{mark} on a class": (
            f"@{mark}\nclass E: pass",
            f"@{mark} marks a method or a function, and not the class E",
        )
        for mark in ["readonly", "transactional"]
    },
    "create as attribute": ("@entity\nclass E:\n  k: str = key()\n  create: str = ''", "E.create clashes"),
    "create as key": ("@entity\nclass E:\n  create: str = key()", "E.create clashes"),
    "upsert as attribute": ("@entity\nclass E:\n  k: str = key()\n  upsert: str = ''", "E.upsert clashes"),
    "attribute key without a key": ("@entity\nclass E:\n  key: str = ''", "E has no key"),
    "create": ("@entity\nclass E:\n  k: str = key()\n  def create(self): pass", "E.create clashes"),
    "delete": ("@entity\nclass E:\n  k: str = key()\n  delete: int = 0", "E.delete clashes"),
    "exists": ("@entity\nclass E:\n  k: str = key()\n  exists: bool", "E.exists clashes"),
    "method or attribute": (
        "@entity\nclass E:\n  k: str = key()\n  x: int\n  def x(self): pass",
        "E.x is a method and an attribute",
    ),
    "property or attribute": (
        "@entity\nclass E:\n  k: str = key()\n  x: int\n  @property\n  def x(self): pass",
        "E.x is a method and an attribute",
    ),
    "inherited method": (
        "class M:\n  def x(self): pass\n@entity\nclass E(M):\n  k: str = key()\n  x: int",
        "E.x is a method and an attribute",
    ),
    "dunder attribute": ("@entity\nclass E:\n  k: str = key()\n  __x__: int = 0", "Python keeps such names"),
    "no self": ("@entity\nclass E:\n  k: str = key()\n  def f(): pass", "E.f takes no parameter"),
    "parameter": ("@entity\nclass E:\n  k: str = key()\n  def f(self, x: Nope): pass", "E.f(x): unknown type"),
    "return": ("@entity\nclass E:\n  k: str = key()\n  def f(self) -> range: pass", "E.f ->: range"),
    "shared default": (
        "@entity\nclass E:\n  k: str = key()\n  def f(self, x: list[int] = []): pass",
        "E.f(x): all calls would share the default list; use None",
    ),
    "shared record": (
        "import dataclasses\n@dataclasses.dataclass\nclass R:\n  n: int = 0\n@entity\nclass E:\n  k: str = key()\n"
        "  def f(self, x: R = R()): pass",
        "E.f(x): all calls would share the default R; use None, or frozen=True in its class",
    ),
    "part of a key": (
        "from datetime import time\n@entity\nclass E:\n  k: tuple[str, tuple[int, time]] = key()",
        "cannot be a key, because time cannot be a part of one; a key is hashable",
    ),
    "parameter default": (
        "@entity\nclass E:\n  k: str = key()\n  def f(self, x: int = 'a'): pass",
        "E.f(x): the default does not fit",
    ),
    "function": ("@transactional\ndef f(x: Nope): pass\nextra = [f]\nE = f", "f(x): unknown type"),
    "plain function": ("def E(): pass", "E is neither an @entity class nor a @transactional or @effect function"),
    "plain class": ("class E: pass", "E is neither"),
    "task": ("class E:\n    def on_event(self, event: int) -> None: ...", "flow(stream).task(E)"),
    "no class at all": ("E = 5", "5 is neither"),
    "options for a subclass of Entity": (
        "from penstock import Entity\n@entity(personal=True)\nclass E(Entity):\n  k: str = key()",
        "E is an entity by its base class, so @entity(personal=True) comes too late; write class E(Entity, personal=True)",
    ),
    "former name of a subclass of Entity": (
        "from penstock import Entity\n@entity(was='D')\nclass E(Entity):\n  k: str = key()",
        'write class E(Entity, was="D")',
    ),
    "entity of an entity": (
        "@entity\nclass F:\n  k: str = key()\n@entity\nclass E(F):\n  x: int = 0\nextra = [F]",
        "E inherits from the entity F",
    ),
    "stranger": (
        "@entity\nclass F:\n  k: str = key()\n@entity\nclass E:\n  k: str = key()\n  x: list[F]",
        "E.x: the entity F is not part of the application app",
    ),
    "strange parameter": (
        "@entity\nclass F:\n  k: str = key()\n@entity\nclass E:\n  k: str = key()\n"
        "  def f(self, x: F | None): pass",
        "E.f(x): the entity F is not part",
    ),
    "dataclass on top": (
        "@dataclasses.dataclass\n@entity\nclass E:\n  k: str = key()\n  x: int = 0",
        "E was changed by a decorator above @entity",
    ),
    "dataclass below": (
        "@entity\n@dataclasses.dataclass\nclass E:\n  k: str = key()",
        "E must not define __eq__",
    ),
    "slots": ("@entity\nclass E:\n  __slots__ = ('k',)\n  k: str", "E must not define __slots__"),
    "long name": (f"@entity\nclass {'E' * 101}:\n  k: str = key()\nE = {'E' * 101}", "at most 100 bytes"),
    "init and key()": (
        "@entity\nclass E:\n  k: str = key()\n  def __init__(self, k: str): self.k = k",
        "E has both key() and __init__",
    ),
    "key() and __key__": (
        "@entity\nclass E:\n  k: str = key()\n  def __key__(self): return self.k",
        "E has both key() and __key__",
    ),
    "computed key": (
        "@entity\nclass E:\n  def __init__(self, k: str): self.k = k\n"
        "  def __key__(self): return self.k.upper()",
        "E.__key__ must be `return self.<attribute>`",
    ),
    "key with a side effect": (
        "@entity\nclass E:\n  def __init__(self, k: str): self.k = k\n"
        "  def __key__(self):\n    print(1)\n    return self.k",
        "E.__key__ must be",
    ),
    "key of nothing": (
        "@entity\nclass E:\n  def __init__(self, k: str): self.k = k\n  def __key__(self): return self.y",
        "E.__key__ returns y, which is not an attribute",
    ),
    "untyped attribute": (
        "@entity\nclass E:\n  def __init__(self, k: str):\n    self.k = k\n    self.x = []\n"
        "  def __key__(self): return self.k",
        "E.x has no annotation; write `self.x: … = …`",
    ),
    "untyped parameter": (
        "@entity\nclass E:\n  def __init__(self, k: str, x):\n    self.k = k\n    self.x = x\n"
        "  def __key__(self): return self.k",
        "E.x has no annotation",
    ),
    "unpacked attributes": (
        "@entity\nclass E:\n  def __init__(self, k: str):\n    self.k, self.x = k, 1\n"
        "  def __key__(self): return self.k",
        "E.x has no annotation",
    ),
    "unknown type in init": (
        "@entity\nclass E:\n  def __init__(self, k: str):\n    self.k = k\n    self.x: Nope = 1\n"
        "  def __key__(self): return self.k",
        "E.x: unknown type 'Nope'",
    ),
    **{
        name: (f"@entity\nclass E:\n  k: str = key()\n  def {name}(self, *a): pass", f"define {name}")
        for name in [
            "__new__", "__del__", "__eq__", "__hash__", "__getattr__", "__getattribute__",
            "__setattr__", "__delattr__", "__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__",
        ]
    },
}  # fmt: skip


@pytest.mark.parametrize(("source", "expected"), CASES.values(), ids=CASES)
def test_wrong_definition_is_reported(build: Build, source: str, expected: str) -> None:
    """Each mistake is reported with the file and line where it is."""
    footer = "\napp = App('app', E, *globals().get('extra', []))"
    found = complaints(build, source + footer)
    fitting = [one for one in found if expected in one]
    assert fitting, found
    where = fitting[0].split(": ")[0]
    if where != "?:?":  # a number has no place
        file, _, line = where.rpartition(":")
        assert file.endswith("defined.py")
        assert int(line) > HEADER.count("\n")


def test_all_mistakes_are_reported_at_once(build: Build) -> None:
    """One error carries every complaint, each on the line of its cause."""
    found = complaints(
        build,
        """
        @entity
        class One:
            x: Nope
            async def f(self, y: Nope2): pass

        @entity
        class Two:
            k: str = key()
            x: object

            def g(self, x: Nope3, *args: Nope4, **named: Nope5) -> Nope6: pass

        @transactional
        def three(x: Nope7): pass

        app = App("two words", One, Two, three, three, max)
        """,
    )
    for mistake in [
        "'two words'", "max is neither", "One has no key", "One.x", "One.f is async", "One.f(y)",
        "Two.x", "Two.g(x)", "Two.g(args)", "Two.g(named)", "Two.g ->", "three(x)",
    ]:  # fmt: skip
        assert [one for one in found if mistake in one], mistake
    file, _, line = found[-1].split(": ")[0].rpartition(":")
    assert Path(file).read_text().splitlines()[int(line) - 1] == "@transactional"


def test_names_are_taken_once(build: Build) -> None:
    """Two classes, or a class and a function, of one name are refused with both places."""
    build("@entity\nclass E:\n  k: str = key()", "first")
    found = complaints(
        build,
        """
        from first import E as Other
        @entity
        class E:
            k: str = key()
        app = App("app", E, Other, E)
        """,
    )
    assert len(found) == 1
    assert "first.py:" in found[0]
    assert "the name E is taken by" in found[0]
    assert "defined.py:" in found[0]


def test_modules_may_know_each_other_by_reference_only(
    build: Build,
) -> None:
    """Cyclic modules import each other under TYPE_CHECKING alone, and run together."""
    header = "from __future__ import annotations\nfrom typing import TYPE_CHECKING\n"
    header += "from penstock import App, entity, key\n"
    build(
        """
        if TYPE_CHECKING:
            from right import Right

        @entity
        class Left:
            name: str = key()
            other: Right | None = None

            def meet(self, other: Right) -> str:
                self.other = other
                return other.greet(self)
        """,
        "left",
        header,
    )
    build(
        """
        if TYPE_CHECKING:
            from left import Left

        @entity
        class Right:
            name: str = key()
            guests: list[Left] = []

            def greet(self, guest: Left) -> str:
                self.guests.append(guest)
                return f"{guest.name} meets {guest.other.name}"
        """,
        "right",
        header,
    )
    module = build("from left import Left\nfrom right import Right\napp = App('app', Left, Right)")
    kit = Kit(module.app)
    kit.call.Left.create("l")
    kit.call.Right.create("r")
    assert kit.call.Left("l").meet(module.Right("r")) == "l meets r"
    assert kit.entity("Right", "r") == {"name": "r", "guests": ["l"]}


def test_classes_inside_of_a_class_are_types_of_its_annotations(build: Build) -> None:
    """The annotations are text, as below `from __future__ import annotations`; Python finds such names, too."""
    module = build(
        """
        class Kind(enum.Enum):
            OTHER = "other"

        class Shared:
            class Grade(enum.IntEnum):
                GOOD = 1

            grade: Grade = Grade.GOOD

        @entity
        class Book(Shared):
            class Kind(enum.Enum):
                NOVEL = "novel"

            isbn: str = key()
            kind: Kind = Kind.NOVEL

            def turn(self, kind: Kind) -> Kind | None:
                return kind

        @entity
        class Disc:
            name: str = key()
            kind: Kind = Kind.OTHER

        app = App("shelf", Book, Disc)
        """
    )
    assert module.Book.__reference__.attributes == {
        "grade": module.Shared.Grade,
        "kind": module.Book.Kind,
    }
    assert module.Disc.__reference__.attributes == {"kind": module.Kind}
    turn = module.app.signature("Book", "turn")
    assert turn.parameters["kind"].annotation is module.Book.Kind


def test_a_modules_own_name_comes_before_another_entity(build: Build) -> None:
    """A class of a module is the meaning of its annotations, also if an entity has that name."""
    build(
        """
        @dataclasses.dataclass
        class Address:
            street: str

        @entity
        class Person:
            name: str = key()
            address: Address | None = None
        """,
        "people",
    )
    module = build(
        """
        from people import Person
        @entity
        class Address:
            k: str = key()
        app = App("app", Person, Address)
        """
    )
    assert "people" in str(module.app.entities["Person"].attributes["address"])


def test_local_classes_and_constants_are_understood() -> None:
    """Entities made inside a function find each other, class variables are no attributes."""

    class Inner(Entity):
        name: str = key()
        other: "Inner | None" = None

        def meet(self, other: "Inner") -> "Inner":
            self.other = other
            return other

    kit = Kit(App("local", Inner))
    for name in "ab":
        kit.call.Inner.create(name)
    assert kit.call.Inner("a").meet(Inner("b")) == Inner("b")


def test_class_variables_and_harmless_bases_are_fine(build: Build) -> None:
    """Class variables in every spelling, ABCs, generics and protocols do not disturb."""
    module = build(
        """
        import typing as t
        T = TypeVar("T")

        class Shape(abc.ABC):
            @abc.abstractmethod
            def area(self) -> int: ...

        class Box(Generic[T]):
            content: int = 0

        class Sized(Protocol):
            def size(self) -> int: ...

        @entity
        class Square(Shape, Box[int], Sized):
            RED: ClassVar[int] = 1
            BLUE: typing.ClassVar[int] = 2
            GREEN: t.ClassVar = 3
            GREY = 4
            name: str = key()
            side: int = 2
            def area(self) -> int:
                return self.side ** 2 + self.RED + self.BLUE + self.GREEN + self.GREY
            def size(self) -> int:
                return self.side
        app = App("app", Square)
        """
    )
    kit = Kit(module.app)
    kit.call.Square.create("s")
    assert kit.call.Square("s").area() == 14
    assert kit.entity("Square", "s") == {"name": "s", "content": 0, "side": 2}
