"""What a handler changes in its process is restored, and noticed, so that no other request runs with it."""

import datetime as dates
import decimal
import gc
import json
import logging
import os
import random
import resource
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock import App, Entity, UserError, key, transactional
from penstock.base.ids import EntityKey, RequestId
from penstock.deployment.loading import load_app
from penstock.engine.execute import Executor, Limits
from penstock.errors import PenstockError
from penstock.process.guard import Guard, TamperedWith
from penstock.testing import Kit


class Colour(Enum):
    RED = 1


@dataclass
class Size:
    width: int = 2

    def area(self) -> int:
        return self.width**2


class Named:
    def title(self) -> str:
        return "plain"


class Guest(Entity, Named):
    name: str = key()
    colour: Colour = Colour.RED
    size: Size | None = None
    seen: ClassVar[int] = 0

    def change(self, what: str) -> None:
        CHANGES[what][0]()

    def keep(self, what: str) -> None:
        DATA[what][0]()

    def seed(self, how: str) -> None:
        getattr(random, how)(*([random.getstate()] if how == "setstate" else [1]))

    def hook(self) -> None:
        sys.addaudithook(print)

    def nothing(self) -> None: ...

    def label(self, text: str = "a", *, more: str = "b") -> str:
        return text + more


@transactional
def nobody() -> None: ...


app = App("tampering", Guest, nobody)
KNOWN: dict[str, int] = {}
COUNT = 0


def refuse(*_: Any, **__: Any) -> Any:
    raise RuntimeError("refused")


def put(owner: Any, name: str, value: Any = refuse) -> Callable[[], object]:
    return lambda: setattr(owner, name, value)


def look(owner: Any, name: str) -> Callable[[], object]:
    return lambda: vars(owner).get(name) if isinstance(owner, type) else getattr(owner, name, None)


def lose_folder() -> None:
    os.chdir(folder := tempfile.mkdtemp())
    Path(folder).rmdir()


def code() -> Any:
    return Guest.label.__code__, Guest.label.__defaults__, Guest.label.__kwdefaults__


def module() -> dict[str, Any]:
    return vars(sys.modules[__name__])


def limit_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))


def description() -> Any:
    return vars(Guest)["__reference__"]


CHANGES: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
    "hook of a class": (
        put(Guest, "__getattribute__"),
        lambda: "__getattribute__" in vars(Guest.__mro__[0]),
    ),
    "method": (put(Guest, "label"), look(Guest, "label")),
    "method deleted": (lambda: delattr(Guest, "label"), look(Guest, "label")),
    "no comparison": (put(Guest, "__eq__", None), lambda: "__eq__" in vars(Guest)),
    "method of a mixin": (put(Named, "title"), look(Named, "title")),
    "method of a record": (put(Size, "area"), look(Size, "area")),
    "bases": (
        lambda: setattr(Guest, "__bases__", (*Guest.__bases__[:-1], Size)),
        lambda: Guest.__bases__,
    ),
    "value of a member": (
        lambda: setattr(Colour.RED, "_value_", 7),
        lambda: Colour.RED.value,
    ),
    "members by value": (
        lambda: vars(Colour)["_value2member_map_"].clear(),
        lambda: Colour(1) is Colour.RED,
    ),
    "code": (lambda: setattr(Guest.label, "__code__", refuse.__code__), code),
    "defaults": (lambda: setattr(Guest.label, "__defaults__", ("c",)), code),
    "named default": (
        lambda: (Guest.label.__kwdefaults__ or {}).update(more="c"),
        lambda: dict(Guest.label.__kwdefaults__ or {}),
    ),
    "attributes": (
        lambda: description().attributes.clear(),
        lambda: list(description().attributes),
    ),
    "description": (lambda: setattr(description(), "prefix", "x/"), lambda: description().prefix),
    "functions of the application": (
        lambda: app.functions.clear(),
        lambda: list(app.functions),
    ),
    "function": (lambda: module().update(refuse=len), lambda: module()["refuse"]),
    "class of the module": (lambda: module().update(Size=Named), lambda: module()["Size"]),
    "hidden name": (lambda: module().update(len=refuse), lambda: "len" in module()),
    "function of a library": (put(json, "dumps"), look(json, "dumps")),
    "class of a library": (put(json.JSONEncoder, "default"), look(json.JSONEncoder, "default")),
    "code of a library": (
        lambda: setattr(json.loads, "__code__", refuse.__code__),
        lambda: json.loads.__code__,
    ),
    "class in a library": (put(dates, "datetime"), look(dates, "datetime")),
    "random": (put(random, "random", random.Random(3).random), look(random, "random")),
    "modules": (lambda: sys.modules.pop("json"), lambda: "json" in sys.modules),
    "path": (sys.path.clear, lambda: [*sys.path]),
    "importers": (lambda: sys.meta_path.insert(0, None), lambda: [*sys.meta_path]),  # type: ignore[arg-type]
    "environment": (put(os, "environ", {}), look(os, "environ")),
    "environment below": (
        lambda: os.environ._data.clear(),  # type: ignore[attr-defined]
        lambda: dict(os.environ),
    ),
    "folder": (lambda: os.chdir("/"), os.getcwd),
    "folder lost": (lose_folder, os.getcwd),
    "mask": (lambda: os.umask(0o777), lambda: (os.umask(os.umask(0)), None)[1]),
    "limits": (limit_files, lambda: resource.getrlimit(resource.RLIMIT_NOFILE)),
    "decimal": (
        lambda: setattr(decimal.DefaultContext, "prec", 2),
        lambda: decimal.DefaultContext.prec,
    ),
    "traps": (
        lambda: decimal.DefaultContext.traps.update({decimal.Inexact: True}),
        lambda: decimal.DefaultContext.traps[decimal.Inexact],
    ),
    "threshold": (lambda: gc.set_threshold(1), gc.get_threshold),
    "debug": (lambda: gc.set_debug(gc.DEBUG_SAVEALL), gc.get_debug),
    "callback": (lambda: gc.callbacks.append(refuse), lambda: [*gc.callbacks]),
    "sockets": (lambda: socket.setdefaulttimeout(0.01), socket.getdefaulttimeout),
    "stacks": (lambda: threading.stack_size(1 << 20), threading.stack_size),
    "logging": (lambda: logging.disable(logging.CRITICAL), lambda: logging.root.manager.disable),
}
"""Changes that other requests would notice, each with what it changes."""


def count() -> None:
    global COUNT
    COUNT += 1
    Guest.seen += 1


DATA: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
    "cache": (lambda: KNOWN.update(a=1), lambda: KNOWN.get("a")),
    "counter": (count, lambda: (COUNT, Guest.seen)),
    "import": (lambda: __import__("this"), lambda: "this" in sys.modules),
    "kept path": (lambda: sys.path.append("/none"), lambda: "/none" in sys.path),
}
"""Ordinary code: data of the application's own modules, and imports."""


def run(*calls: tuple[str, tuple[Any, ...]]) -> None:
    """Run calls as one batch."""
    state: dict[EntityKey, bytes] = {}
    executor = Executor(app, state.get, Limits())
    with Guard(executor, Limits(), batched=True) as guard:
        for method, arguments in guard.each(calls):
            body, _ = app.request("Guest", "a", "create")
            executor.run(RequestId("c"), body, 0)
            getattr(BARE, method)(None, *arguments)


class BARE:
    """The methods as functions, so that they run inside of a batch and outside of a transaction."""

    change: Any = vars(Guest)["change"]
    keep: Any = vars(Guest)["keep"]
    nothing: Any = vars(Guest)["nothing"]


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_reaches_no_other_request(what: str) -> None:
    """Requests that ran in a process that one of them has changed are run again, and find it as it was."""
    before = CHANGES[what][1]()
    with pytest.raises(TamperedWith):
        run(("change", (what,)), ("nothing", ()))
    assert CHANGES[what][1]() == before
    run(("change", (what,)))
    assert CHANGES[what][1]() == before
    run(("nothing", ()), ("nothing", ()))


@pytest.mark.parametrize("what", DATA)
def test_ordinary_code_is_no_change(what: str) -> None:
    """A cache, a counter and an import stay, and no request runs again."""
    before = DATA[what][1]()
    run(("keep", (what,)), ("nothing", ()))
    assert DATA[what][1]() != before
    if what == "kept path":
        sys.path.remove("/none")


def test_requests_one_by_one_find_the_process_as_it_was() -> None:
    """The local runtime restores the process behind each request."""
    kit = Kit(app)
    kit.call.Guest.create("a")
    for what, (_, get) in CHANGES.items():
        before = get()
        with suppress(PenstockError):  # the outcome of a request is its own
            kit.call.Guest("a").change(what)
        assert get() == before, what


@pytest.mark.parametrize("how", ["seed", "setstate"])
def test_the_state_of_random_is_refused(how: str) -> None:
    """A handler cannot decide the numbers of others; the error names what does the same."""
    kit = Kit(app)
    kit.call.Guest.create("a")
    with pytest.raises(UserError, match=r"random\.Random\(seed\)"):
        kit.call.Guest("a").seed(how)
    random.seed(a=1)


def test_audit_hooks_are_refused() -> None:
    """No process can remove them."""
    kit = Kit(app)
    kit.call.Guest.create("a")
    with pytest.raises(UserError, match="audit hooks"):
        kit.call.Guest("a").hook()


SEEDING = """
from random import seed

import numpy.random
from penstock import App, Entity, key


class Die(Entity):
    name: str = key()

    def load(self) -> None:
        seed(1)

    def load_numpy(self) -> None:
        numpy.random.seed(1)


app = App("dice", Die)
"""


@pytest.mark.parametrize("method", ["load", "load_numpy"])
def test_a_function_that_a_module_has_taken_by_its_name_is_refused(
    tmp_path: Path, method: str
) -> None:
    """An application is imported with the functions that refuse."""
    path = tmp_path / f"dice_{method}.py"
    path.write_text(SEEDING)
    kit = Kit(load_app(str(path)))
    kit.call.Die.create("a")
    with pytest.raises(UserError, match="which other transactions see"):
        getattr(kit.call.Die("a"), method)()
