"""`ask`: the handler of a task sends a request to an entity, and waits for its result."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from penstock.model.call import call_of
from penstock.model.streams.ask import Ask, running_step

A = TypeVar("A")
P = ParamSpec("P")


def ask(method: Callable[P, A], /, *arguments: P.args, **named: P.kwargs) -> Ask[A]:
    """Send a request to an entity or a function from the handler of a task; await the result to get its reply.

    The request is appended to the log when the step of the handler takes effect, awaited or not, and is a
    transaction of its own: `await ask(Item.reserve, Item("i1"), 2)`.

    Args:
        method: A method, a creation or a function.
        arguments: The reference, for a method, and the arguments.
        named: The arguments by name.

    Raises:
        RequestError: The method does not exist, or the arguments do not fit.
        OutsideTransaction: No handler of a task runs.
    """
    step = running_step("ask an entity")
    asked: Ask[A] = step.call(call_of(method, arguments, named))
    return asked
