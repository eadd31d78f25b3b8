"""Decisions without input, output or clock: generators that ask for something, and get answers.

What decides between processes and hosts (`journal.head`, `files.store_answers`, `process.lease`) is written like
this. A process carries out what a decision asks for, at once; a simulation of many hosts carries it out late, twice,
in another order, or never. An answer may be an `OSError`, which is raised where the decision has asked.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

Ask = TypeVar("Ask")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Now:
    """Ask for the seconds of a clock that only goes forward."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Ask to go on after some seconds."""

    seconds: float


def carried_out(decision: Generator[Ask, Any, T], answer: Callable[[Ask], object]) -> T:
    """Return what a decision decides.

    Args:
        answer: Carries out what the decision asks for, and returns the answer. An `OSError` of it is an answer, too.
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
