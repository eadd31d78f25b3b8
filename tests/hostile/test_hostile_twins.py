"""Hostile handlers without Spark: one thread, `Kit` and the engine answer them alike, and go on.

Acts here leave their process as it is; `test_hostile_process` has the others.
"""

import random
import sys
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.execute import Limits
from penstock.model.call import Call as EntityCall
from penstock.model.request import Failure, decode_failure
from penstock.runtime.local.runtime import LocalRuntime
from penstock.testing import Kit
from tests.differential.programs import drawn
from tests.differential.simulation import Answer, Layout, Simulation
from tests.hostile import strategies
from tests.hostile.handlers import app
from tests.hostile.places import PLACES
from tests.hostile.programs import (
    DEEDS,
    TRAPS,
    Bank,
    Call,
    Danger,
    act,
    beginning,
    between,
    entries,
    numbered,
)
from tests.memory_log import MemoryLog

T = TypeVar("T")

LIMITS = Limits(time_ms=10_000)
CODE_MAX = 64


def calmly(function: Callable[[], T], what: object) -> T:
    """Return a result; fail with a plain error where a hostile one comes out.

    The hostile one is forgotten first: pytest would look at it, and fail instead of the test.
    """
    done: list[T] = []
    try:
        done.append(function())
    except BaseException:  # noqa: BLE001 -- any exception of an act
        done.clear()
    assert done, f"{what} raised into the runtime"
    return done[0]


def check_alike(calls: list[Call], layout: Layout) -> None:
    """Give calls to one thread and to the engine; compare, and ask the bank."""
    log = MemoryLog()
    log.append(entries(app, numbered("r")([*beginning(), *calls])))
    records, hint = log.read(log.start(), log.end()), log.hints(log.start(), log.end())
    serial = LocalRuntime(app, limits=LIMITS)
    replies = []
    bank = Bank()
    for call, record in zip([*beginning(), *calls], records, strict=True):
        (reply,) = calmly(partial(serial.replay, [record]), call)
        replies.append(reply)
        assert bank.complaint(call, (reply.error, reply.data)) is None, call
        check_answer(call, reply.error, reply.data)
    simulation = Simulation(app, layout, {})
    expected = [Answer(one.request_id, one.error, one.data) for one in replies]
    answers = calmly(partial(simulation.epoch, records, hint), calls)
    assert answers == expected
    assert simulation.state == serial.state


def check_answer(call: Call, error: str | None, data: bytes) -> None:
    """Assert that any reader understands an answer."""
    if error is None:
        msgspec.msgpack.decode(data)
        return
    failure = decode_failure(data)
    assert isinstance(failure, Failure)
    assert failure.code == error, call
    assert error.isascii(), call
    assert 0 < len(error) <= CODE_MAX, call
    assert len(failure.kind) <= 200, call


layouts = st.builds(Layout, st.integers(1, 3))


@drawn(60)
@given(strategies.histories(Danger.NONE), layouts)
def test_engine_answers_hostile_handlers_like_one_thread(calls: list[Call], layout: Layout) -> None:
    """For any acts of handlers, replies and state are those of one thread, and others are served."""
    check_alike(calls, layout)


def check_deeds(verb: str) -> None:
    """Let handlers do every deed of a verb, each between honest requests."""
    chance = random.Random(verb)
    acts = [act(chance, deed) for deed in DEEDS[Danger.NONE] if deed.startswith(f"{verb} ")]
    check_alike(between(chance, acts, 1), Layout(2))


def test_every_exception_is_the_outcome_of_its_request() -> None:
    """No class, text, code or cause of an exception reaches beyond its request."""
    check_deeds("raise")


def test_every_result_is_the_outcome_of_its_request() -> None:
    """Each value that a handler returns is read back, or refused alone."""
    check_deeds("return")


@pytest.mark.parametrize(
    "verb", ["store", "store-inside", "save", "give", "refer", "number", "misuse"]
)
def test_every_deed_is_the_outcome_of_its_request(verb: str) -> None:
    """Each value that is stored, passed on or used as a key is answered, and others do not notice."""
    check_deeds(verb)


def test_every_place_ends_at_its_request() -> None:
    """An exception at any place, or of a method of any value, is the outcome of its request."""
    chance = random.Random(1)
    acts = [
        act(chance, deed, [place])
        for place in PLACES
        for deed in ("raise cancelled", "return big", "misuse delete_and_write")
    ]
    some = chance.sample(TRAPS, 800)
    acts += [act(chance, "raise interrupt", [place]) for place in some]
    check_alike(between(chance, acts, 1), Layout(2))


def test_kit_answers_like_the_local_runtime() -> None:
    """A test of an application sees the outcomes that are recorded everywhere."""
    chance = random.Random(2)
    kit, local = Kit(app, limits=LIMITS), LocalRuntime(app, limits=LIMITS)
    deeds = [one for one in DEEDS[Danger.NONE] if one.startswith(("raise", "misuse"))]
    calls = [*beginning(), *(act(chance, deed) for deed in deeds)]
    for number, call in enumerate(calls):
        body, _ = call.encode(app)
        entity, key, method, positional, _ = msgspec.msgpack.decode(body)
        answers = [
            one.submit(
                EntityCall(
                    entity,
                    key,
                    method,
                    tuple(_arguments(call, positional)),
                    request_id=f"r{number}",
                )
            )
            for one in (kit, local)
        ]
        assert answers[0].error == answers[1].error, call
        assert answers[0].data == answers[1].data, call
    assert kit.runtime.state == local.state


def _arguments(call: Call, positional: list[object]) -> list[object]:
    if call.method != "act":
        return positional
    return [*positional[:2], app.entities["Account"].of_text(f"a{call.friend}")]


def test_depth_is_counted_from_the_handler() -> None:
    """A history of hostile handlers leaves the recursion limit as it was."""
    before = sys.getrecursionlimit()
    check_alike([act(random.Random(3), "return deep list")], Layout(1))
    assert sys.getrecursionlimit() == before
