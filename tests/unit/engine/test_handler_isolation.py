"""A handler's changes of its process end with its transaction, in every runtime alike."""

import builtins
import contextvars
import decimal
import gc
import locale
import os
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from penstock import App, UserError, entity, key, transactional
from penstock.base.ids import Lsn, RequestId
from penstock.engine.execute import Limits
from penstock.engine.namespaces import Namespaces, _always, _is_no_module, _Owner
from penstock.engine.replay import Replayer, RequestRow
from penstock.engine.task import Task
from penstock.log.api import Record
from penstock.model.call import Call
from penstock.process.guard import RENEW_EVERY, Guard
from penstock.runtime.local.runtime import LocalRuntime
from penstock.testing import Kit

COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")
COLOUR.set("chosen")
decimal.getcontext().prec = 11


def trace(*_: object) -> None:
    """Look at nothing."""


def without_filters() -> None:
    warnings.filters = []


CHANGES: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
    "precision": (
        lambda: setattr(decimal.getcontext(), "prec", 3),
        lambda: decimal.getcontext().prec,
    ),
    "flags": (
        lambda: decimal.Decimal(1) / 3,
        lambda: decimal.getcontext().flags[decimal.Inexact],
    ),
    "decimal context": (
        lambda: decimal.setcontext(decimal.Context(prec=3)),
        lambda: decimal.getcontext().prec,
    ),
    "context variable": (lambda: COLOUR.set("mine"), COLOUR.get),
    "switch interval": (lambda: sys.setswitchinterval(0.5), sys.getswitchinterval),
    "collector": (gc.enable, gc.isenabled),
    "recursion": (lambda: sys.setrecursionlimit(10_000), sys.getrecursionlimit),
    "digits": (lambda: sys.set_int_max_str_digits(0), sys.get_int_max_str_digits),
    "trace": (lambda: sys.settrace(trace), sys.gettrace),
    "profile": (lambda: sys.setprofile(trace), sys.getprofile),
    "output": (lambda: setattr(sys, "stdout", None), lambda: sys.stdout),
    "filter": (lambda: warnings.simplefilter("error"), lambda: [*warnings.filters]),
    "filters": (without_filters, lambda: [*warnings.filters]),
}
LATER: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
    "built-in name": (lambda: vars(builtins).update(ord=max), lambda: ord),
    "new built-in name": (
        lambda: vars(builtins).update(colour=1),
        lambda: hasattr(builtins, "colour"),
    ),
}
SEEN: list[object] = []


@entity
class Guest:
    name: str = key()

    def change(self, what: str) -> None:
        (CHANGES | LATER)[what][0]()

    def look(self, what: str) -> None:
        SEEN.append((CHANGES | LATER)[what][1]())

    def set_environment(self, name: str) -> None:
        os.environ[name] = "x"

    def unset_environment(self, name: str) -> None:
        del os.environ[name]

    def replace_len(self) -> None:
        builtins.len = max  # type: ignore[assignment]

    def remove_len(self) -> None:
        del builtins.len

    def break_everything(self) -> None:
        for name in ("len", "isinstance", "type", "tuple", "getattr"):
            vars(builtins)[name] = max

    def move(self) -> None:
        os.chdir("/")
        os.umask(0)

    def set_locale(self) -> str:
        before = locale.setlocale(locale.LC_ALL)
        locale.setlocale(locale.LC_ALL, "C")
        return before


def deep(count: int) -> int:
    try:
        return deep(count + 1)
    except RecursionError:
        return count


@transactional
def depth() -> int:
    return deep(0)


app = App("isolation", Guest, depth)
decimal.getcontext().prec = 28


@pytest.fixture
def kit() -> Kit:
    SEEN.clear()
    kit = Kit(app)
    kit.call.Guest.create("a")
    return kit


def requests(kit: Kit, what: str, count: int) -> list[Record]:
    """Return looks with one change behind the first of them."""
    methods = ["look", "change", *["look"] * count]
    return [
        Record(Lsn(n), RequestId(f"{what}-{n}"), app.request("Guest", "a", method, [what])[0], 0)
        for n, method in enumerate(methods)
    ]


@pytest.mark.parametrize("what", CHANGES)
def test_change_ends_with_its_transaction(kit: Kit, what: str) -> None:
    """The next handler sees the same process as the handler before the change."""
    outside = CHANGES[what][1]()
    kit.runtime.replay(requests(kit, what, 1))
    assert SEEN[1] == SEEN[0]
    assert CHANGES[what][1]() == outside


@pytest.mark.parametrize("what", LATER)
def test_change_of_the_process_ends_soon(kit: Kit, what: str) -> None:
    """Settings that are expensive to compare are restored some transactions later, and at the end."""
    outside = LATER[what][1]()
    kit.runtime.replay(requests(kit, what, RENEW_EVERY))
    assert SEEN[-1] == SEEN[0]
    kit.call.Guest("a").change(what)
    assert LATER[what][1]() == outside


def test_handlers_begin_as_the_application_was_built(kit: Kit) -> None:
    """Context variables and decimal precision are those of the line `App(…)`, wherever it runs."""
    COLOUR.set("of the caller")
    for what in ("context variable", "precision"):
        thread = threading.Thread(target=kit.call.Guest("a").look, args=[what])
        thread.start()
        thread.join()
        kit.call.Guest("a").look(what)
    assert SEEN == ["chosen", "chosen", 11, 11]


def test_environment_cannot_be_changed(kit: Kit) -> None:
    """A handler that changes environment variables is undone, and the variables are restored."""
    name = next(iter(os.environ))
    before = dict(os.environ)
    with pytest.raises(UserError, match="the environment"):
        kit.call.Guest("a").set_environment("PENSTOCK_TESTS_MARK")
    with pytest.raises(UserError, match="the environment"):
        kit.call.Guest("a").unset_environment(name)
    assert dict(os.environ) == before
    os.environ["PENSTOCK_TESTS_MARK"] = "outside, everything is allowed"
    del os.environ["PENSTOCK_TESTS_MARK"]


def test_folder_and_mask_are_put_back_at_the_end(kit: Kit) -> None:
    """A handler that changes the working directory or the mask of file modes does so for a moment."""
    before = Path.cwd(), os.umask(0o077)
    os.umask(before[1])
    kit.call.Guest("a").move()
    after = Path.cwd(), os.umask(0o077)
    os.umask(before[1])
    assert after == before


@pytest.mark.parametrize("method", ["replace_len", "remove_len"])
def test_builtin_names_cannot_be_changed(kit: Kit, method: str) -> None:
    """A handler that replaces or removes a shared name is undone."""
    with pytest.raises(UserError, match="built-in names"):
        getattr(kit.call.Guest("a"), method)()


def test_next_request_finds_the_builtin_names_whole(kit: Kit) -> None:
    """A handler that breaks them behind Python's back harms no request but its own."""
    records = requests(kit, "recursion", 3)
    body, _ = app.request("Guest", "a", "break_everything")
    kit.runtime.replay([Record(Lsn(0), RequestId("breaks"), body, 0), *records])
    assert len(SEEN) == 4


def test_locale_can_be_asked_only(kit: Kit) -> None:
    """A handler that sets the locale is undone; asking for it is not setting it."""
    with pytest.raises(UserError, match="the locale"):
        kit.call.Guest("a").set_locale()


def run_in_replay(body: bytes) -> bytes:
    replayer = Replayer(app, {}, Limits())
    with Guard(replayer.executor, Limits()):
        return replayer.run(RequestRow(Lsn(0), RequestId("r"), 0, body, None, b"")).reply


def run_in_task(body: bytes) -> bytes:
    task = Task(app, lambda _: None, Limits())
    with Guard(task.executor, Limits()) as guard:
        (outcome,) = [task.run(0, RequestId("r"), body, 0) for _ in guard.each([0])]
    assert outcome is not None
    return outcome.reply


def run_deeper(body: bytes, frames: int) -> bytes:
    return run_deeper(body, frames - 1) if frames else run_in_replay(body)


def test_handlers_have_as_many_frames_everywhere() -> None:
    """A handler that counts its frames gets one answer in a call, a log, a replay and a task."""
    body, _ = app.request("", None, "depth")
    records = [Record(Lsn(n), RequestId(f"r{n}"), body, 0) for n in range(2)]
    replies = {one.data for one in LocalRuntime(app).replay(records)}
    replies |= {LocalRuntime(app).submit(Call("", None, "depth")).data}
    replies |= {run_in_replay(body), run_in_task(body), run_deeper(body, 50)}
    assert len(replies) == 1


def test_garbage_waits_for_the_end() -> None:
    """Finalizers of cyclic garbage never run inside a transaction, but soon behind it."""
    seen: list[bool] = []

    class Cycle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            seen.append(gc.isenabled())

    @transactional
    def litter() -> int:
        for _ in range(5_000):
            Cycle()
        return len(seen)

    kit = Kit(App("litter", litter))
    assert kit.call.litter() == 0
    gc.collect()
    assert len(seen) == 5_000


def test_an_import_of_a_part_of_a_package_replaces_no_name() -> None:
    """A module that joins its package stays there; a function that is replaced does not."""
    package = ModuleType("package")
    package.function = len  # type: ignore[attr-defined]
    names = Namespaces([_Owner("package", vars(package), None, _always, _is_no_module)], [])
    names.learn()
    package.part = ModuleType("package.part")  # type: ignore[attr-defined]
    assert not names.restore()
    assert package.part.__name__ == "package.part"
    package.function = max  # type: ignore[attr-defined]
    package.more = min  # type: ignore[attr-defined]
    assert names.restore() == "package.function"
    assert (package.function, hasattr(package, "more"), hasattr(package, "part")) == (
        len,
        False,
        True,
    )
