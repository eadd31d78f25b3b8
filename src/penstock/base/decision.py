"""Decisions without input, output or clock: generators that ask for something, and get answers.

The rules between processes and hosts (`journal.head`, `files.store_answers`, `process.lease`) are written like
this. A process carries out what a decision asks for, at once; a simulation of many hosts carries it out late, twice,
in another order, or never. An answer may be an `OSError`, which is raised where the decision has asked.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

import msgspec

Ask = TypeVar("Ask")
T = TypeVar("T")


class Now(msgspec.Struct, frozen=True):
    """Ask for the seconds of a clock that only goes forward."""


class Pause(msgspec.Struct, frozen=True):
    """Ask to go on after some seconds."""

    seconds: float


def carried_out(decision: Generator[Ask, Any, T], answer: Callable[[Ask], object]) -> T:
    """Return the outcome of a decision.

    Args:
        answer: Carries out the deed of the decision, and returns the answer. An `OSError` of it is an answer, too.
    """
    try:
        ask = next(decision)
        while True:
            try:
                got = answer(ask)
            except OSError as error:
                ask = decision.throw(error)
            else:
                ask = decision.send(got)
    except StopIteration as end:
        decided: T = end.value
        return decided
