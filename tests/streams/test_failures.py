"""Handlers that fail: their step leaves nothing, its atom is set aside, and the rest goes on."""

import asyncio
from typing import Any

import pytest

from penstock import (
    Aborted,
    App,
    AskFailed,
    Emit,
    Entity,
    OutsideTransaction,
    Unencodable,
    UserError,
    call,
    flow,
    gather,
    key,
    portal,
    splitter,
    stream,
)
from tests.streams.two_ways import Kit

numbers = stream("numbers", int)


class Picky:
    total: int = 0

    def on_event(self, number: int, out: Emit[int]) -> None:
        self.total += number
        out(self.total)
        if number < 0:
            raise ValueError(f"negative: {number}")


def test_a_failed_atom_leaves_nothing() -> None:
    """The state and the output of the atom are undone, and the next atom runs."""
    kit = Kit(App("x", flow("picky", numbers).task(Picky).sink("out")))
    kit.append(numbers, [1])
    kit.append(numbers, [2, -1, 3], check=False)
    kit.append(numbers, [4])
    assert kit.atoms("out") == [[1], [5]]
    [[failed]] = kit.atoms("picky-failed")
    assert (failed.source, failed.code, failed.message) == (
        "numbers",
        "unhandled",
        "ValueError: negative: -1",
    )
    assert failed.events == (b"\x02", b"\xff", b"\x03")


def test_equal_keys_of_other_types() -> None:
    """A key is remembered for the rest of its atom, but not for an equal value of another type, which has no text."""
    keyed = flow("picky", numbers).key(lambda number: 1 if number < 9 else True).task(Picky)
    kit = Kit(App("x", keyed.sink("out")))
    kit.append(numbers, [1, 2, 9], check=False)
    kit.append(numbers, [3, 4])
    assert kit.atoms("out") == [[3, 7]]
    [[failed]] = kit.atoms("picky-failed")
    assert "key of type bool" in failed.message


def test_a_kit_raises_the_failure() -> None:
    """In a test, the failure of a workflow is the failure of the append, with its exception."""
    kit = Kit(App("x", flow("picky", numbers).task(Picky).sink("out")))
    with pytest.raises(Aborted, match="negative: -1") as caught:
        kit.append(numbers, [-1])
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_splitter_sets_aside() -> None:
    """A predicate that fails sets the whole atom aside."""
    halves = splitter("halves", numbers, tens=lambda n: 10 / n > 0)
    kit = Kit(App("x", halves))
    kit.append(numbers, [1, 0], check=False)
    kit.append(numbers, [2])
    assert kit.atoms("halves-tens") == [[2]]
    assert kit.atoms("halves-failed")[0][0].message == "ZeroDivisionError: division by zero"


square = portal("square", int, int)
chain = portal("chain", int, int, key=lambda n: n)


class Replier:
    asked: int = 0

    def on_event(self, number: int) -> None:
        """Nothing comes here."""

    @square.reply
    def on_square(self, number: int) -> int:
        self.asked += 1
        if number < 0:
            raise ValueError("negative")
        return number * number


class Chained:
    async def on_event(self, number: int, out: Emit[int]) -> None:
        out(await chain.ask(number))

    @chain.reply
    async def on_chain(self, number: int) -> int:
        if number == 0:
            return await square.ask(3)
        return 1 + await chain.ask(number - 1)


def replying(task: Any) -> Kit:
    return Kit(
        App(
            "x",
            flow("replier", stream("none", int)).task(Replier).sink("nothing", int),
            flow("asker", numbers).key(int).task(task).sink("out", int),
        )
    )


class Catching:
    async def on_event(self, number: int, out: Emit[int]) -> None:
        try:
            out(await square.ask(number))
        except AskFailed as failed:
            out(-1 if "ValueError: negative" in str(failed) else -2)


def test_a_failed_reply_is_an_exception() -> None:
    """All requests of a failed step get the failure, and the state of the replier is undone."""
    kit = replying(Catching)
    kit.append(numbers, [2, -1], check=False)
    kit.append(numbers, [3])
    assert [atom for atom in kit.atoms("out") if atom] == [[-1, -1], [9]]
    assert kit.task("replier.Replier") == {"asked": 1}


def test_nested_requests() -> None:
    """A replier may ask before it replies, also itself under another key."""
    kit = replying(Chained)
    kit.append(numbers, [5])
    assert kit.atoms("out")[-1] == [14]
    assert not any(name.startswith("$") for name in kit.runtime.state)


class Gathering:
    async def on_event(self, number: int, out: Emit[int]) -> None:
        first, *rest = await gather(*(square.ask(number + n) for n in range(3)))
        out(first + sum(rest))


def test_gather() -> None:
    """Several requests wait together, and reach the replier as one atom."""
    kit = replying(Gathering)
    kit.append(numbers, [1])
    assert kit.atoms("out") == [[], [1 + 4 + 9]]


class Misspelling:
    async def on_event(self, number: int, out: Emit[int]) -> None:
        out(await square.ask(str(number)))  # type: ignore[arg-type]


def test_a_request_of_the_wrong_type() -> None:
    """The message names the portal and the type of its requests."""
    with pytest.raises(Unencodable, match="portal square has requests of type int: Expected `int`"):
        replying(Misspelling).append(numbers, [1])


class Sleepy:
    async def on_event(self, number: int, out: Emit[int]) -> None:
        await Never()


class Never:
    def __await__(self) -> Any:
        yield "something"


class Timed:
    async def on_event(self, number: int, out: Emit[int]) -> None:
        await asyncio.sleep(number)


class Generating:
    async def on_event(self, number: int, out: Emit[int]) -> Any:
        yield number


class Stubborn:
    """Refuses to be ended."""

    async def on_event(self, number: int, out: Emit[int]) -> None:
        try:
            await square.ask(number)
        finally:
            await square.ask(number)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Sleepy, "awaits str"),
        (Timed, "uses asyncio"),
        (Generating, "returned a async_generator"),
    ],
)
def test_a_handler_awaits_requests_only(task: Any, message: str) -> None:
    """Anything else fails its step at once."""
    with pytest.raises(UserError, match=message):
        replying(task).append(numbers, [1])


def test_a_handler_that_refuses_to_end() -> None:
    """It is given up with its step, and the next atom runs."""
    kit = replying(Stubborn)
    kit.append(numbers, [-1], check=False)
    assert not any(name.startswith("$") for name in kit.runtime.state)


class Client(Entity):
    name: str = key()

    def ask(self) -> None:
        square.ask(1)


class UsingEntity:
    def on_event(self, number: int) -> None:
        Client("a").name  # noqa: B018 -- the key needs no look at the entity
        Client("a").ask()


def test_a_task_uses_no_entity() -> None:
    """The message says what to do in its place."""
    kit = Kit(App("x", Client, flow("f", numbers).task(UsingEntity).sink("out", int)))
    with pytest.raises(
        UserError, match="handler or function of a workflow cannot use the entity Client"
    ):
        kit.append(numbers, [1])


def is_client(number: int) -> bool:
    return Client.exists(str(number))


def named_client(number: int) -> tuple[str]:
    return (f"{Client.exists(str(number))}",)


@pytest.mark.parametrize(
    ("members", "user"),
    [
        ([splitter("kinds", numbers, clients=is_client)], "a function of splitter kinds"),
        ([call(numbers, Client.create, named_client)], "the function of call numbers-create"),
        (
            [flow("f", numbers).filter(is_client).sink("out", int)],
            "a handler or function of a workflow",
        ),
    ],
)
def test_a_function_of_a_stream_uses_no_entity(members: list[Any], user: str) -> None:
    """The message names the function's place, although the class is part of the application."""
    kit = Kit(App("x", Client, *members))
    with pytest.raises(UserError, match=f"{user} cannot use the entity Client; use the "):
        kit.append(numbers, [1])


def test_an_entity_asks_no_portal() -> None:
    """Only the handler of a task can wait."""
    kit = Kit(App("x", Client, flow("f", numbers).task(Replier).sink("out", int)))
    kit.call.Client.create("a")
    with pytest.raises(OutsideTransaction, match="only the handler of a task can ask"):
        kit.call.Client("a").ask()


class Forgetful:
    def on_event(self, number: int, out: Emit[int]) -> None:
        square.ask(number).then(self.on_reply)

    def on_reply(self, reply: int, out: Emit[int]) -> None:
        out(reply)


def test_a_method_for_a_reply_that_lacks_out() -> None:
    """The message says how the method is called, and how it gets `out`."""

    class Replying:
        def on_event(self, number: int) -> None: ...

        @square.reply
        def on_square(self, number: int) -> int:
            return 2 * number

    replying = flow("replying", stream("never", int)).task(Replying).sink("nothing", int)
    kit = Kit(App("x", replying, flow("f", numbers).task(Forgetful).sink("out")))
    with pytest.raises(UserError, match=r"missing 1 required.*give it `out`, too, as in \.then"):
        kit.append(numbers, [1])
