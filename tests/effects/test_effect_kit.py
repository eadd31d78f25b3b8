"""Effects in a kit: fakes stand for the calls, and each outcome is a request of its own."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from penstock import (
    App,
    DefinitionError,
    Entity,
    Final,
    LocalRuntime,
    Outcome,
    RequestError,
    UserError,
    effect,
    effect_id,
    key,
    limit,
    savepoint,
    secret,
    send,
    transactional,
)
from penstock.base.ids import Lsn
from penstock.engine.effect_call import settlement_of
from penstock.log.api import Record
from penstock.model.waiting_effect import Settlement
from penstock.testing import Kit
from tests.effects.charging_app import Order, app, bought, charge, mail, notify, poison, purchases


def kit_of(**fakes: Any) -> Kit:
    effects = {"charge": lambda order, cents: f"{order} paid {cents}", **fakes}
    kit = Kit(
        app,
        effects={
            each: effects[each.__name__]
            for each in (charge, notify, mail, poison)
            if each.__name__ in effects
        },
    )
    kit.call(Order.create, "o1")
    return kit


def outcomes(kit: Kit) -> list[str]:
    entity = kit.entity("Order", "o1")
    assert entity is not None
    return list(entity["outcomes"])


def test_the_outcome_is_a_request_to_the_method_of_then() -> None:
    """The fake gets the arguments, and the method gets its result; nothing is left in the state."""
    kit = kit_of()
    kit.call(Order.check_out, Order("o1"))
    assert outcomes(kit) == ["done: o1 paid 500"]
    assert [key for key in kit.runtime.state if key.startswith("$")] == []


def test_an_effect_without_a_fake_fails_the_test() -> None:
    """The sentence names the effect, its sender and the remedy."""
    kit = Kit(app)
    kit.call(Order.create, "o1")
    with pytest.raises(
        UserError, match=r"effect charge was sent by Order/o1, .* Kit\(app, effects="
    ):
        kit.call(Order.check_out, Order("o1"))


def test_a_failure_is_tried_again() -> None:
    """The calls of one effect have one id, which differs from that of another effect."""
    ids: list[str] = []

    def failing(_order: str, _cents: int) -> str:
        ids.append(effect_id())
        if len(ids) < 3:
            raise ConnectionError("cut")
        return "paid"

    kit = kit_of(charge=failing)
    kit.call(Order.check_out, Order("o1"))
    assert outcomes(kit) == ["done: paid"]
    kit.call(Order.check_out, Order("o1"))
    assert ids[0] == ids[1] == ids[2] != ids[3]


def test_failures_end_as_a_dead_letter() -> None:
    """`Final` ends the tries; the last error is that of the outcome."""

    def declined(_order: str, _cents: int) -> str:
        raise Final("declined")

    kit = kit_of(charge=declined)
    kit.call(Order.check_out, Order("o1"))
    assert outcomes(kit) == ["failed: Final: declined"]
    assert [key for key in kit.runtime.state if key.startswith("$")] == ["$effect/local-1~~1"]


def test_a_result_that_does_not_fit_is_a_failure() -> None:
    """The function is not called again: it would do its work twice."""
    calls: list[str] = []

    def wrong(order: str, _cents: int) -> int:
        calls.append(order)
        return 5

    kit = kit_of(charge=wrong)
    kit.call(Order.check_out, Order("o1"))
    [told] = outcomes(kit)
    assert told.startswith("failed: Unencodable: the result of charge: Expected `str`, got `int`")
    assert calls == ["o1"]


def test_a_fake_may_return_an_outcome() -> None:
    """So a test sees what an unknown outcome does."""
    kit = kit_of(mail=lambda _order: Outcome("unknown", error="its process ended"))
    kit.call(Order.post, Order("o1"))
    assert outcomes(kit) == ["unknown: its process ended"]


def test_an_outcome_of_a_fake_has_a_known_status() -> None:
    """Another one would never end the effect: the kit called the fake again and again."""
    kit = kit_of(mail=lambda _order: Outcome("bad"))  # type: ignore[arg-type]
    with pytest.raises(
        UserError, match=r"the fake of effect mail returned Outcome\('bad'\); a status is"
    ):
        kit.call(Order.post, Order("o1"))


def test_a_delayed_effect_waits_for_the_clock() -> None:
    """`send_after` needs nothing of its own."""
    kit = kit_of()
    kit.call(Order.remind, Order("o1"))
    assert outcomes(kit) == []
    kit.clock.advance(timedelta(hours=1))
    kit.settle()
    assert outcomes(kit) == ["done: o1 paid 500"]


@pytest.mark.parametrize("durable", [False, True])
def test_a_saga_is_try_and_except(*, durable: bool) -> None:
    """A workflow asks effects; one that has failed raises `AskFailed` at its `await`."""

    def declining(order: str, cents: int) -> str:
        if order.startswith("declined"):
            raise Final("declined")
        return f"{order} paid {cents}"

    kit = Kit(app, effects={charge: declining, notify: lambda order: order}, durable_waits=durable)
    kit.append(purchases, ["p1"])
    assert kit.atoms(bought)[-1] == [
        "p1 paid 100 undone by undo-p1: charge: EffectFailed: Final: declined"
    ]


def test_only_the_first_outcome_counts() -> None:
    """A second one, one of another round, and one behind a dead letter are ignored; an order begins another round."""
    runtime = LocalRuntime(app)
    runtime.call(Order.create, "o1")
    runtime.call(Order.check_out, Order("o1"))
    [waiting] = runtime.waiting_effects()

    def settle(settlement: Settlement, number: str) -> str:
        reply = runtime._submit(settlement.body(), f"{waiting.id}~~{number}")
        assert reply.error is None
        return str(msgspec.msgpack.decode(reply.data)[0])

    failed = settlement_of(waiting, "failed", error="cut", tries=3)
    assert settle(failed, "o1") == "failed"
    done = settlement_of(waiting, "done", value=msgspec.msgpack.encode("late"))
    assert settle(done, "x1") == "ignored"
    assert settle(settlement_of(waiting, "retry"), "r1") == "retry"
    assert settle(done, "x2") == "ignored", "it belongs to the former round"
    [again] = runtime.waiting_effects()
    assert settle(settlement_of(again, "discard"), "d1") == "discard"
    assert settle(settlement_of(again, "retry"), "r2") == "ignored"
    outcomes = msgspec.msgpack.decode(runtime.state["Order/o1"])[-1]  # type: ignore[index]
    assert outcomes == ["failed: cut", "failed: it was discarded by an operator"]


def test_an_effect_has_its_outcome_if_the_method_fails() -> None:
    """The method is a request of its own: the effect is not called again."""

    class Till(Entity):
        name: str = key()

        def pay(self) -> None:
            send(charge, self.name, 1).then(self.paid)

        def paid(self, outcome: Outcome[str]) -> None:
            raise ValueError(outcome.value)

    kit = Kit(App("tills", Till, charge), effects={charge: lambda *_: "paid"})
    kit.call(Till.create, "t1")
    kit.call(Till.pay, Till("t1"))
    assert list(kit.runtime.state) == ["Till/t1"]
    replies = {str(reply.request_id): reply.error for _, reply in kit.runtime._known.values()}
    assert replies["local-1~~1~~o1~~1"] == "aborted" or replies["local-1~~1~~o1~~1"] == "unhandled"


def test_a_savepoint_undoes_an_effect() -> None:
    """`then` of an effect that was undone does nothing."""

    class Till(Entity):
        name: str = key()

        def pay(self) -> None:
            sent = []
            with suppress(ValueError), savepoint():
                sent.append(send(charge, self.name, 1))
                raise ValueError
            sent[0].then(self.paid)

        def paid(self, outcome: Outcome[str]) -> None: ...

    kit = Kit(App("tills", Till, charge))
    kit.call(Till.create, "t1")
    kit.call(Till.pay, Till("t1"))
    assert list(kit.runtime.state) == ["Till/t1"]


def test_a_replay_calls_nothing() -> None:
    """The outcome is a record of the log, so a replay has it."""
    kit = kit_of()
    kit.call(Order.check_out, Order("o1"))
    known = kit.runtime._known.values()
    roots = [
        (body, reply)
        for body, reply in known
        if not str(reply.request_id).split("~~")[-1].isdigit()
    ]
    records = [
        Record(Lsn(place), reply.request_id, body, kit.clock.time_us)
        for place, (body, reply) in enumerate(roots)
    ]
    twin = LocalRuntime(app)
    twin.replay(records)
    assert twin.state == kit.runtime.state


class Misuser(Entity):
    """Uses effects in wrong ways."""

    name: str = key()

    def direct(self) -> None:
        charge(self.name, 1)

    def request(self) -> None:
        send(Misuser.direct, self).then(self.paid)  # type: ignore[arg-type]

    def no_method(self) -> None:
        send(charge, self.name, 1).then(print)

    def no_outcome(self) -> None:
        send(charge, self.name, 1).then(self.number)  # type: ignore[arg-type]

    def misfit(self) -> None:
        send(charge, self.name, "much")  # type: ignore[arg-type]

    def number(self, number: int) -> None: ...

    def paid(self, outcome: Outcome[str]) -> None: ...


def test_misuse_names_the_remedy() -> None:
    """A handler cannot call an effect, and no caller can request one."""

    kit = Kit(App("tills", Misuser, charge))
    kit.call(Misuser.create, "t1")
    for method, message in (
        (Misuser.direct, r"charge is an effect, .* send it: send\(charge, …\)"),
        (Misuser.request, r"\.then belongs to an effect"),
        (Misuser.no_method, r"the method of \.then is one of a reference"),
        (Misuser.no_outcome, r"\.then: Misuser\.number: number: "),
        (Misuser.misfit, r"charge: cents: Expected `int`, got `str`"),
    ):
        with pytest.raises(UserError, match=message):
            kit.call(method, Misuser("t1"))
    with pytest.raises(RequestError, match="charge is an effect, which no caller requests"):
        kit.call.charge("t1", 5)
    with pytest.raises(UserError, match="only an effect has an id"):
        effect_id()
    with pytest.raises(UserError, match="only an effect has secrets"):
        secret("KEY")
    assert charge.__wrapped__ is not charge  # type: ignore[attr-defined]


def test_wrong_declarations_are_named() -> None:
    """All mistakes of an effect are complaints with their line."""
    for arguments, message in (
        ({"tries": 0}, "tries=0 must be a number from 1 to 1000"),
        ({"timeout": 5}, "timeout=5 must be a timedelta"),
        ({"until": timedelta(0)}, "until=.* must be a timedelta"),
        ({"once": True, "tries": 2}, "once=True calls the function once; omit tries=2"),
        ({"once": 1}, "once=1 is neither True nor False"),
    ):
        with pytest.raises(DefinitionError, match=rf"test_effect_kit.py:\d+: called: {message}"):

            @effect(**arguments)
            def called() -> None: ...

    @effect
    def stepwise() -> Any:
        return None

    @effect
    @limit("5/s per key")
    def counted() -> None: ...

    @transactional
    def service() -> None: ...

    with pytest.raises(DefinitionError, match="counted: an effect has no key; remove `per key`"):
        App("wrong", stepwise, counted, service)
    with pytest.raises(
        DefinitionError,
        match="is neither an @entity class nor a @transactional or @effect function",
    ):
        App("wrong", print)
