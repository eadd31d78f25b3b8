"""Lines: what waits behind a handler of an exclusive key runs in steps of its own, and survives each change of the code."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from penstock import App, AskFailed, Deadlock, Emit, ask, flow, portal, stream
from penstock.engine.limits import Limits
from penstock.testing import Kit as MemoryKit
from tests.streams.two_ways import Kit
from tests.streams.waiting_app import Shelf, waiting_rows

puts, wishes = stream("puts", int), stream("wishes", str)
price = portal("price", str, int, key=str)


class Prices:
    """Its workflow pauses at a negative number, so that all who ask it wait."""

    cost: int = 3

    def on_event(self, number: int) -> None:
        if number < 0:
            raise ValueError("negative")

    @price.reply
    def on_price(self, item: str) -> int:
        return self.cost


class Buyer:
    done: list[str] = []
    running: int = 0

    async def on_event(self, wish: str, out: Emit[str]) -> None:
        if wish == "worst":
            raise ValueError("worst wish")
        self.running += 1
        at_once = self.running
        await price.ask(wish)
        self.running -= 1
        self.done = [*self.done, wish]
        if wish == "bad":
            raise ValueError("bad wish")
        out(f"{wish}{'' if at_once == 1 else at_once}")


def buying(*, exclusive: bool, on_failure: Any = "set-aside") -> App:
    prices = flow("prices", puts, on_failure="pause").task(Prices).sink("prices", int)
    buyers = flow("buyers", wishes, on_failure=on_failure).key(lambda wish: "k")
    return App("x", prices, buyers.task(Buyer, exclusive=exclusive).sink("bought", str))


def waiting_kit(*names: str, kind: Any = Kit, **named: Any) -> Any:
    """Return a kit in which the first wish waits for its price, and the others wait behind it."""
    kit = kind(buying(**named))
    kit.append(puts, [-1], check=False)
    for name in names:
        kit.append(wishes, [name], check=False)
    return kit


def bought(kit: MemoryKit) -> list[str]:
    return [event for atom in kit.atoms("bought") for event in atom]


def set_aside(kit: MemoryKit) -> list[tuple[str, str]]:
    return [(failed.source, failed.message) for [failed] in kit.atoms("buyers-failed")]


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_a_failure_takes_no_event_of_another_append_along(bad: int) -> None:
    """Of three appends behind each other, the one whose handler fails after its wait is set aside alone."""
    names = ["good1", "good2", "good3"]
    names[bad] = "bad"
    kit = waiting_kit(*names, exclusive=True, kind=MemoryKit)
    kit.runtime.resume("prices", skip=True)
    assert bought(kit) == [
        f"{name}{2 if bad < place else ''}" for place, name in enumerate(names) if name != "bad"
    ]
    assert set_aside(kit) == [("replies", "ValueError: bad wish")]


def test_an_event_that_fails_at_its_turn_is_set_aside_alone() -> None:
    """The handler before it keeps its effect, the next event is processed, and the failure names the task."""
    kit = waiting_kit("first", "worst", "last", exclusive=True, kind=MemoryKit)
    kit.runtime.resume("prices", skip=True)
    assert bought(kit) == ["first", "last"]
    assert set_aside(kit) == [("buyers.Buyer", "ValueError: worst wish")]
    assert not [name for name in waiting_rows(kit.runtime) if "paused" not in name]


@pytest.mark.parametrize("skip", [False, True])
def test_a_workflow_pauses_at_an_event_of_a_line(*, skip: bool) -> None:
    """The events behind it stay in the line until the workflow is resumed; it fails again, or is set aside."""
    kit = waiting_kit("first", "worst", "last", exclusive=True, on_failure="pause", kind=MemoryKit)
    kit.runtime.resume("prices", skip=True)
    assert (bought(kit), list(kit.paused())) == (["first"], ["buyers"])
    kit.append(wishes, ["later"])
    kit.runtime.resume("buyers", skip=skip)
    assert bought(kit) == (["first", "last", "later"] if skip else ["first"])
    assert set_aside(kit) == [("buyers.Buyer", "ValueError: worst wish")] * skip


def test_a_line_outlives_the_word_exclusive() -> None:
    """Without the word, all in line are processed before new events; none is lost, and none blocks the key later."""
    kit = waiting_kit("a", "b", "c", exclusive=True, kind=MemoryKit)
    kit.runtime.deploy(buying(exclusive=False))
    kit.append(wishes, ["d"])
    kit.runtime.resume("prices", skip=True)
    assert sorted(name[0] for name in bought(kit)) == ["a", "b", "c", "d"]
    kit.runtime.deploy(buying(exclusive=True))
    kit.append(wishes, ["e"])
    assert bought(kit)[-1] == "e"
    assert [name for name in waiting_rows(kit.runtime) if "paused" not in name] == []


def test_handlers_that_wait_already_exclude_others_when_the_word_is_added() -> None:
    """Two handlers run at once; an event that comes after the deployment waits for both of them."""
    kit = waiting_kit("a", "b", exclusive=False, kind=MemoryKit)
    kit.runtime.deploy(buying(exclusive=True))
    kit.append(wishes, ["c"])
    kit.runtime.resume("prices", skip=True)
    assert bought(kit) == ["a", "b2", "c"]


def test_a_task_that_was_gone_blocks_no_key() -> None:
    """The reply to its handler arrives while the task is gone; when it is back, its line goes on."""
    kit = waiting_kit("a", "b", exclusive=True, kind=MemoryKit)
    prices = flow("prices", puts, on_failure="pause").task(Prices).sink("prices", int)
    kit.runtime._deploy(App("x", prices), ["buyers.Buyer"])
    kit.runtime.resume("prices", skip=True)
    kit.runtime._deploy(buying(exclusive=True), ["buyers.Buyer"])
    kit.append(wishes, ["c"])
    assert [name[0] for name in bought(kit)] == ["b", "c"]


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_line_in_rows_of_an_earlier_form_is_read(*, exclusive: bool) -> None:
    """A line whose row has its items, and a handler whose row has its turns, go on."""
    kit = waiting_kit("a", "b", "c", exclusive=True, kind=MemoryKit)
    state = kit.runtime.state
    former_rows(state)
    kit.runtime.deploy(buying(exclusive=exclusive))
    kit.runtime.resume("prices", skip=True)
    assert [name[0] for name in bought(kit)] == ["a", "b", "c"]
    assert [name for name in waiting_rows(kit.runtime) if "paused" not in name] == []


def former_rows(state: dict[Any, bytes]) -> None:
    """Write the rows of one handler and of one line as they were before turns and items had rows."""
    decode, encode = msgspec.msgpack.decode, msgspec.msgpack.encode
    state.pop("$queued/buyers.Buyer")  # the number of items
    items = [decode(state.pop(key)) for key in sorted(state) if key.startswith("$queued/")]
    [line] = [key for key in state if key.startswith("$line/")]
    state[line] = encode([1, items])
    turns = [decode(state.pop(key)) for key in sorted(state) if key.startswith("$turn/")]
    [wait] = [key for key in state if key.startswith("$wait/")]
    name, task, key, _, _, awaiting, *_ = decode(state[wait])
    state[wait] = encode([name, task, key, turns[0], turns[1:], awaiting])


move = portal("move", list[int], bool, key=lambda accounts: accounts[0])
moves = stream("moves", list[int])


class Account:
    balance: int = 100

    def on_event(self, number: int) -> None: ...

    @move.reply
    async def on_move(self, accounts: list[int]) -> bool:
        if len(accounts) > 1:
            await move.ask(accounts[1:])
        self.balance += 1
        return True


class Catching(Account):
    """Does its own part although the other part fails."""

    @move.reply
    async def on_move(self, accounts: list[int]) -> bool:
        if len(accounts) > 1:
            try:
                await move.ask(accounts[1:])
            except Deadlock:
                self.balance += 10
        self.balance += 1
        return True


class Requester:
    async def on_event(self, accounts: list[int], out: Emit[str]) -> None:
        try:
            out(f"{accounts} {await move.ask(accounts).within(timedelta(seconds=5))}")
        except AskFailed as error:
            out(f"{accounts} {type(error).__name__}")


def transfers(task: Any = Catching) -> App:
    accounts = flow("a", stream("never", int)).key(lambda number: number)
    return App(
        "x",
        accounts.task(task, name="Account", exclusive=True).sink("b", int),
        flow("r", moves).task(Requester).sink("outcomes"),
    )


def outcomes(kit: MemoryKit) -> list[str]:
    return sorted(event for atom in kit.atoms("outcomes") for event in atom)


@pytest.mark.parametrize("steps", [1, 2, 3, 10_000])
@pytest.mark.parametrize(
    "asked",
    [
        [[1, 2], [2, 1]],
        [[1, 1]],
        [[1, 2, 3], [2, 3, 1], [3, 1, 2]],
        [[1, 2, 3, 1]],
        [[1, 2], [2, 3], [3, 1]],
    ],
)
def test_a_cycle_fails_at_the_question_that_closes_it(asked: list[list[int]], steps: int) -> None:
    """All others go on, on both ways of waiting and wherever the cascade is cut; each request has its reply, and no row is left."""
    kit = Kit(transfers(), limits=Limits(cascade_steps=steps))
    kit.append(moves, asked)
    while not kit.runtime.settle():
        pass
    assert outcomes(kit) == sorted(f"{accounts} True" for accounts in asked)
    keys = {account for accounts in asked for account in accounts}
    gained = sum(kit.task("a.Account", account)["balance"] - 100 for account in keys)
    assert 0 < gained - sum(map(len, asked)) < 10 * len(asked)
    kit.clock.advance(timedelta(seconds=6))
    kit.settle()
    assert waiting_rows(kit.runtime) == []
    kit.append(moves, [[account] for account in sorted(keys)])
    assert len(outcomes(kit)) == len(asked) + len(keys)


def test_a_cycle_that_nobody_catches_fails_one_of_two() -> None:
    """The failure has a code of its own, and names the tasks and keys."""
    kit = Kit(transfers(Account))
    kit.append(moves, [[1, 2], [2, 1]], check=False)
    assert outcomes(kit) == ["[1, 2] Deadlock", "[2, 1] True"]
    [[failed]] = kit.atoms("a-failed")
    assert failed.code == Deadlock.code
    named = "a handler of a.Account with key 1, which waits for a handler of a.Account with key 2"
    assert f"{named}, which waits for the first one" in failed.message


def test_a_request_that_nobody_awaits_closes_no_cycle() -> None:
    """A handler that asks its own key without awaiting the reply ends, and then the request is taken."""

    class Unwaiting(Account):
        @move.reply
        async def on_move(self, accounts: list[int]) -> bool:
            if len(accounts) > 1:
                move.ask(accounts[1:])
                await ask(Shelf.add, Shelf("a"), 1)
            self.balance += 1
            return True

    app = transfers(Unwaiting)
    kit = Kit(App("x", Shelf, *app.members))
    kit.call.Shelf.create("a")
    kit.append(moves, [[1, 1, 1]])
    assert outcomes(kit) == ["[1, 1, 1] True"]
    assert kit.task("a.Account", 1) == {"balance": 103}


def test_a_cycle_closes_when_an_earlier_question_is_awaited() -> None:
    """The question was in line, and its handler ran; only its late `await` lets both wait for ever."""

    class Late(Account):
        @move.reply
        async def on_move(self, accounts: list[int]) -> bool:
            if len(accounts) > 1:
                asked = move.ask(accounts[1:])
                await ask(Shelf.add, Shelf("a"), 1)
                try:
                    await asked
                except Deadlock:
                    self.balance += 10
            self.balance += 1
            return True

    kit = Kit(App("x", Shelf, *transfers(Late).members))
    kit.call.Shelf.create("a")
    kit.append(moves, [[1, 1]])
    assert outcomes(kit) == ["[1, 1] True"]
    assert kit.task("a.Account", 1) == {"balance": 111}
    kit.append(moves, [[1, 2], [2, 1]])
    assert len(outcomes(kit)) == 3


own = portal("own", int, str)
numbers = stream("numbers", int)


class Lone:
    async def on_event(self, number: int, out: Emit[str]) -> None:
        try:
            out(f"{number} {await own.ask(number).within(timedelta(seconds=6))}")
        except Deadlock:
            out(f"{number} would wait for itself")

    @own.reply
    def on_own(self, number: int) -> str:
        return "here"


@pytest.mark.parametrize("keyed", [False, True])
def test_a_task_that_asks_itself(*, keyed: bool) -> None:
    """With one key for all it would wait for ever; under another key it gets its reply."""
    start: Callable[[Any], Any] = (
        (lambda flow: flow.key(lambda number: number)) if keyed else (lambda flow: flow)
    )
    kit = Kit(App("x", start(flow("w", numbers)).task(Lone, exclusive=True).sink("out")))
    kit.append(numbers, [1, 2])
    said = [event for atom in kit.atoms("out") for event in atom]
    assert said == ["1 would wait for itself", "2 would wait for itself"]
