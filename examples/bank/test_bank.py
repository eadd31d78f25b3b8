"""The bank and its audit without Spark: payments move money once, and lose none."""

from typing import Any

import pytest

from penstock import Aborted, NoSuchEntity
from penstock.testing import Kit

from . import app
from .account import Account, Overdrawn
from .audit import WATCHED, Finding, audited, findings, payments


def balances(kit: Kit) -> dict[str, int]:
    return {key: one["balance"] for key, one in kit.entities("Account").items()}


def test_bank_pays_all_three_accounts_or_none() -> None:
    """A payment reaches destination and fees together, or the source keeps everything."""
    kit = Kit(app)
    kit.call.Account.create("source", balance=100, overdraft_limit=50)
    kit.call.Account.create("destination")
    kit.call.Account.create("fees")
    pay = kit.call.Account("source").pay
    assert pay(Account("destination"), 120, Account("fees"), 5) == -25
    assert balances(kit) == {"source": -25, "destination": 120, "fees": 5}
    with pytest.raises(Aborted, match="Overdrawn: source: -49 left, 5 wanted") as caught:
        pay(Account("destination"), 24, Account("fees"), 5)
    assert isinstance(caught.value.__cause__, Overdrawn)
    with pytest.raises(Aborted, match="NotAnAmount: -1"):
        pay(Account("destination"), -1, Account("fees"), 5)
    with pytest.raises(NoSuchEntity):
        pay(Account("destination"), 1, Account("nowhere"), 1)
    assert balances(kit) == {"source": -25, "destination": 120, "fees": 5}


def test_bank_pays_once_for_one_request_id() -> None:
    """A payment sent again under its request id gets the first answer and moves nothing."""
    kit = Kit(app)
    kit.call.init_accounts(0, 3, 100)
    pay = kit.call.Account("0").pay
    first = pay(Account("1"), 10, Account("2"), 1, request_id="payment-1")
    assert pay(Account("1"), 10, Account("2"), 1, request_id="payment-1") == first == 89
    assert balances(kit) == {"0": 89, "1": 110, "2": 101}


def test_bank_transfers() -> None:
    """A transfer keeps the sum of all balances, also to oneself."""
    kit = Kit(app)
    kit.call.init_accounts(0, 2, 100)
    assert kit.call.Account("0").transfer(Account("1"), 30) == 70
    assert kit.call.Account("0").transfer(Account("0"), 70) == 0
    assert balances(kit) == {"0": 70, "1": 130}


def flat(atoms: list[list[Any]]) -> list[Any]:
    return [event for atom in atoms for event in atom]


@pytest.fixture
def watched() -> Kit:
    """A bank with an audit and three accounts."""
    kit = Kit(audited)
    kit.call.init_accounts(0, 3, 2 * WATCHED)
    return kit


def pay(kit: Kit, amount: int) -> int:
    left: int = kit.call.pay(Account("0"), Account("1"), amount, Account("2"), 5)
    return left


def test_the_audit_finds_an_account_once(watched: Kit) -> None:
    """It is found with the payment that reaches the sum."""
    assert pay(watched, WATCHED - 1) == WATCHED + 1 - 5
    assert flat(watched.atoms(findings)) == []
    pay(watched, 1)
    pay(watched, 1)
    assert flat(watched.atoms(findings)) == [Finding("0", WATCHED)]
    assert watched.task("audit.Audit", "0") == {"paid": WATCHED + 1, "fees": 15}


def test_the_audit_sees_no_refused_payment(watched: Kit) -> None:
    """A payment that is undone is no event."""
    with pytest.raises(Aborted, match="Overdrawn"):
        pay(watched, 3 * WATCHED)
    assert watched.atoms(payments) == []
