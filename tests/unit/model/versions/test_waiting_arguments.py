"""Requests that wait while a method changes: each argument keeps the parameter that it was given to."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from penstock import App, Entity, key, send_after, transactional
from penstock.errors import RequestError
from penstock.model.request import decode_request
from penstock.testing import Kit

HOUR = timedelta(hours=1)


def one(method: Callable[..., None], later: Callable[[Any], None]) -> App:
    """Return an application with a method `pay`, and a method that sends requests."""
    return App("accounts", _account(method, later))


def _account(method: Callable[..., None], sends: Callable[[Any], None]) -> type:
    class Account(Entity):
        id: str = key()
        log: list[str] = []
        pay = method

        def later(self) -> None:
            sends(self)

    return Account


def nothing(self: Any) -> None:
    pass


def amount_and_fee(self: Any, amount: int, fee: int = 1) -> None:
    self.log.append(f"amount={amount} fee={fee}")


def fee_and_amount(self: Any, fee: int = 7, amount: int = 8) -> None:
    self.log.append(f"amount={amount} fee={fee}")


def one_more(self: Any, note: str = "-", amount: int = 0, fee: int = 7) -> None:
    self.log.append(f"amount={amount} fee={fee} note={note}")


def by_name(self: Any, *, fee: int, amount: int) -> None:
    self.log.append(f"amount={amount} fee={fee}")


def any_names(self: Any, **given: int) -> None:
    self.log.append(" ".join(f"{name}={value}" for name, value in sorted(given.items())))


def without_fee(self: Any, amount: int) -> None:
    self.log.append(f"amount={amount}")


def renamed(self: Any, amount: int, charge: int = 7) -> None:
    self.log.append(f"amount={amount} charge={charge}")


def all_of(self: Any, amount: int, *fees: int) -> None:
    self.log.append(f"amount={amount} fees={fees}")


def strict(self: Any, fee: int, amount: int, /) -> None:
    self.log.append(f"amount={amount} fee={fee}")


def waiting(
    former: Callable[..., None], present: Callable[..., None], *arguments: Any, **named: Any
) -> Kit:
    """Run a scheduled request after a deployment."""

    def sends(account: Any) -> None:
        send_after(HOUR, type(account).pay, account, *arguments, **named)

    kit = Kit(one(former, sends))
    kit.call.Account.create("a")
    kit.call.Account("a").later()
    kit.runtime.deploy(one(present, nothing))
    kit.clock.advance(2 * HOUR)
    kit.runtime.settle()
    return kit


def log_of(kit: Kit) -> list[str]:
    account = kit.entity("Account", "a")
    assert account is not None
    return list(account["log"])


FITTING: dict[str, tuple[Callable[..., None], str]] = {
    "exchanged": (fee_and_amount, "amount=100 fee=5"),
    "a new parameter": (one_more, "amount=100 fee=5 note=-"),
    "by name alone": (by_name, "amount=100 fee=5"),
    "any names": (any_names, "amount=100 fee=5"),
    "by position alone": (strict, "amount=100 fee=5"),
}


@pytest.mark.parametrize("how", FITTING)
@pytest.mark.parametrize("named", [False, True])
def test_argument_follows_the_name_of_its_parameter(how: str, *, named: bool) -> None:
    """An argument by position is stored with the name that its parameter had."""
    present, expected = FITTING[how]
    if named and present is strict:
        return
    given: Any = {"fee": 5} if named else {}
    kit = waiting(amount_and_fee, present, 100, *[5] * (not named), **given)
    assert log_of(kit) == [expected]


@pytest.mark.parametrize("present", [without_fee, renamed, all_of])
def test_argument_without_a_parameter_is_refused(present: Callable[..., None]) -> None:
    """The request fails, and the message names the parameter that is gone."""
    kit = waiting(amount_and_fee, present, 100, 5)
    assert log_of(kit) == []
    (failure,) = [reply for _, reply in kit.runtime._known.values() if reply.error]
    assert b"Account.pay has no parameter fee" in failure.data


def test_sent_request_has_the_defaults_of_its_time() -> None:
    """A default that changes, and a parameter that is new, do not change what was sent."""
    for present in (fee_and_amount, one_more):
        kit = waiting(amount_and_fee, present, 100)
        assert log_of(kit)[0].startswith("amount=100 fee=1")


def test_created_entity_has_the_defaults_of_the_time_of_its_request() -> None:
    """The attributes that a scheduled creation leaves out are those that it had when it was sent."""

    def bank(first: int) -> App:
        class Purse(Entity):
            id: str = key()
            coins: int = first

        @transactional
        def later() -> None:
            send_after(HOUR, Purse.create, "p")

        return App("bank", Purse, later)

    kit = Kit(bank(3))
    kit.call.later()
    kit.runtime.deploy(bank(4))
    kit.clock.advance(2 * HOUR)
    kit.runtime.settle()
    assert kit.entity("Purse", "p") == {"id": "p", "coins": 3}


def test_further_arguments_stay_further_arguments() -> None:
    """They have no names, so they reach a method that takes any number, and no parameter of another one."""
    kit = waiting(all_of, all_of, 1, 2, 3)
    assert log_of(kit) == ["amount=1 fees=(2, 3)"]
    assert log_of(waiting(all_of, amount_and_fee, 1, 2)) == []


def test_request_of_an_earlier_version_has_no_names() -> None:
    """Its arguments belong to the parameters in their order."""
    app = one(amount_and_fee, nothing)
    signature = app.signature("Account", "pay")
    assert signature.decode(msgspec.Raw(b"\x92\x01\x02"), msgspec.Raw(b"\x80")) == ((1, 2), {})


def test_names_of_arguments_are_checked() -> None:
    """A name stands once, and no argument has the empty name."""
    app = one(any_names, nothing)
    with pytest.raises(RequestError, match="an argument has no name"):
        app.request("Account", "a", "pay", [], {"": 1})
    signature = one(amount_and_fee, nothing).signature("Account", "pay")
    for listed, given in ((["amount"], {"amount": 1}), (["amount", "amount"], {}), ([1], {})):
        named = msgspec.Raw(msgspec.msgpack.encode({"": listed, **given}))
        with pytest.raises(RequestError):
            signature.decode(msgspec.Raw(b"\x92\x01\x02"), named)


def test_the_usual_call_has_one_encoding() -> None:
    """Arguments by position add the names of their parameters, and no argument adds nothing."""
    app = one(amount_and_fee, nothing)
    body, _ = app.request("Account", "a", "pay", [1])
    assert decode_request(body).named == msgspec.Raw(msgspec.msgpack.encode({"": ["amount"]}))
    assert decode_request(app.request("Account", "a", "later")[0]).named == msgspec.Raw(b"\x80")
