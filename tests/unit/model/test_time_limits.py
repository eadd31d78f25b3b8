"""`@limit(time=…)`: a handler that needs more processor time than others says so, and gets it."""

import subprocess
import sys
import time
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from penstock import (
    App,
    DefinitionError,
    Emit,
    Entity,
    LimitExceeded,
    call,
    flow,
    generator,
    key,
    limit,
    migrate,
    portal,
    splitter,
    stream,
    transactional,
)
from penstock.dataflow.analysis.analyze import analyze_app
from penstock.dataflow.text import plan_text
from penstock.engine.limits import Limits
from penstock.testing import Kit

SHORT = Limits(time_ms=40, wall_ms=60_000)


def work() -> int:
    """Use several times the processor time of a usual handler, in steps that can be interrupted."""
    end = time.thread_time() + 0.3
    while time.thread_time() < end:
        pass
    return 1


class Counter(Entity):
    name: str = key()

    @limit("5/s", time="60s")
    def slow(self) -> int:
        return work()

    def plain(self) -> int:
        return work()


@limit(time=timedelta(minutes=1))
class Mill(Entity):
    name: str = key()

    def grind(self) -> int:
        return work()

    @limit(time="20ms")
    def hurry(self) -> int:
        return work()


@limit(time="1m")
@transactional
def crunch() -> int:
    return work()


numbers = stream("numbers", int)


class Square:
    @limit(time="60s")
    def on_event(self, event: int, out: Emit[int]) -> None:
        out(event + work() * 0)


class Root:
    def on_event(self, event: int, out: Emit[int]) -> None:
        out(event + work() * 0)


squares = flow("squares", numbers).task(Square).sink("squared")
roots = flow("roots", numbers).task(Root).sink("rooted")
app = App("times", Counter, Mill, crunch, numbers, squares, roots)


def test_a_method_has_the_time_that_it_declares() -> None:
    """Methods, functions and all methods of a class may take longer; the next request has the usual time again."""
    kit = Kit(app, limits=SHORT)
    kit.call.Counter.create("a")
    kit.call.Mill.create("a")
    kit.call.crunch()
    kit.call.Mill("a").grind()
    for method in (Counter.plain, Mill.hurry):
        kit.call.Counter("a").slow()
        with pytest.raises(LimitExceeded, match=f"{method.__qualname__} ran longer than time_ms"):
            getattr(getattr(kit.call, method.__qualname__.split(".")[0])("a"), method.__name__)()


def test_a_workflow_has_the_time_that_a_handler_declares() -> None:
    """A step takes the longest time of its workflow; other workflows have the usual one."""
    kit = Kit(app, limits=SHORT)
    kit.append(numbers, [4], check=False)
    assert kit.atoms(squares) == [[4]]
    (failure,) = kit.runtime.failures
    assert "a handler of roots.Root ran longer than time_ms = 40" in str(failure)


def test_times_are_named_with_the_graph() -> None:
    """Whoever reads the graph sees which members may stop all other requests for long."""
    text = plan_text(analyze_app(app))
    assert "time limits of their own\n" in text
    listed = text.partition("time limits of their own\n")[2].partition("\n\n")[0]
    assert [line.split() for line in listed.splitlines()] == [
        ["Counter.slow", "60", "s"],
        ["Mill.grind", "60", "s"],
        ["Mill.hurry", "0.02", "s"],
        ["Mill.create", "60", "s"],
        ["crunch", "60", "s"],
        ["workflow", "squares", "60", "s"],
    ]


@pytest.mark.parametrize(
    "wrong", ["60", "-1s", "0s", "25h", "soon", 60, timedelta(), timedelta(days=-1)]
)
def test_a_wrong_time_is_a_mistake_of_the_definition(wrong: Any) -> None:
    """It is named with its place when the application is built."""

    class Wrong(Entity):
        name: str = key()

        @limit(time=wrong)
        def run(self) -> None: ...

    with pytest.raises(
        DefinitionError, match=r'test_time_limits.*Wrong\.run: time=.* is not a time; write "500ms"'
    ):
        App("wrong", Wrong)


def test_a_time_without_effect_is_a_mistake() -> None:
    """No request calls a private method, and of two times only one could count."""

    class Wrong(Entity):
        name: str = key()

        @limit(time="60s")
        def _run(self) -> None: ...

        @limit(time="60s")
        @limit(time="30s")
        def run(self) -> None: ...

    with pytest.raises(DefinitionError) as raised:
        App("wrong", Wrong)
    assert "Wrong._run: @limit(time=…) has no effect here" in str(raised.value)
    assert "Wrong.run: @limit(time=…) stands twice" in str(raised.value)


class Slow:
    """Functions that declare a time in ways of their own."""

    @limit(time="60s")
    def __call__(self, event: int) -> bool:
        return event > 0

    @limit(time="60s")
    def method(self, event: int) -> bool:
        return event > 0


@limit(time="60s")
def slow(event: int) -> bool:
    return event > 0


SLOW = [slow, partial(slow), Slow(), Slow().method]


@pytest.mark.parametrize("function", SLOW)
def test_a_function_that_no_workflow_runs_declares_no_time(function: Any) -> None:
    """Splitters, calls and generators do not obey a time, so they refuse it by name."""
    begun = stream("begun", int)
    split = splitter("signs", begun, positive=function, other=lambda event: True)
    sink = call(begun, crunch, function)
    numbers = generator("numbers", begun, function, atom_size=1)
    with pytest.raises(DefinitionError) as raised:
        App("wrong", crunch, begun, split, sink, numbers)
    for name in (
        "stream positive of splitter signs",
        "the function of call begun-crunch",
        "the source of generator numbers",
    ):
        assert "test_time_limits.py" in str(raised.value)
        assert f"{name} has @limit(time=…), which has no effect here" in str(raised.value)


@pytest.mark.parametrize("function", SLOW)
def test_a_function_of_a_flow_has_its_time(function: Any) -> None:
    """It may be an object or wrapped, and counts for the step."""
    begun = stream("begun", int)
    app = App("flowing", begun, flow("kept", begun).filter(function).sink("positive", int))
    assert app.time_limits == {"workflow kept": 60_000}


@limit("5/s")
def rated(event: int) -> bool:
    return event > 0


def test_a_function_that_no_request_calls_declares_no_rate() -> None:
    """A limit counts requests, so functions of workflows and splitters refuse it by name."""
    begun = stream("begun", int)
    split = splitter("signs", begun, positive=rated, other=lambda event: True)
    with pytest.raises(DefinitionError) as raised:
        App("wrong", begun, split, flow("kept", begun).filter(rated).sink("positive", int))
    for name in ("stream positive of splitter signs", "rated"):
        assert f"{name} has @limit('5/s'), which has no effect here" in str(raised.value)


def test_a_migration_declares_no_time() -> None:
    """It runs in the time of its reader."""

    class Item(Entity):
        name: str = key()

    @migrate(Item, since=2)
    @limit(time="60s")
    def newer(old: dict[str, Any]) -> dict[str, Any]:
        return old

    with pytest.raises(DefinitionError, match=r"newer has @limit\(time=…\), which has no effect"):
        App("wrong", Item, newer)


def test_a_handler_that_replies_has_its_time() -> None:
    """Its task may take as long as the method that replies to the portal declares."""
    squared = portal("squared", int, int)
    begun = stream("begun", int)

    class Server:
        def on_event(self, event: int, out: Emit[int]) -> None:
            out(event)

        @limit(time="2m")
        @squared.reply
        def square(self, request: int) -> int:
            return request * request

    served = flow("served", begun).task(Server).sink("done")
    assert App("served", begun, squared, served).time_limits == {"workflow served": 120_000}


def test_a_declared_time_holds_also_where_the_application_is_loaded_first() -> None:
    """A command loads the application, which closes the timers to handlers, before it loads the guard of handlers."""
    lines = (
        "from penstock.process.tampering import refuse_changes",
        "refuse_changes()",
        f"from {__name__} import SHORT, Kit, app",
        "print(Kit(app, limits=SHORT).call.crunch())",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("1\n", "")
