"""The bank with an audit: each payment is an event, and a workflow watches how much each account pays.

A payment that is undone publishes no event. The audit works after the payment, so it never delays or refuses one.
`audited` is an application of its own.
"""

from dataclasses import dataclass

from penstock import App, Emit, PerTask, emit, flow, stream, transactional

from .account import Account, init_accounts

WATCHED = 10_000


@dataclass
class Payment:
    source: str
    destination: str
    amount: int
    fee: int


@dataclass
class Finding:
    """An account has paid `paid` in all, which is `WATCHED` or more."""

    account: str
    paid: int


payments = stream("payments", Payment)


@transactional
def pay(source: Account, destination: Account, amount: int, fees: Account, fee: int) -> int:
    left = source.pay(destination, amount, fees, fee)
    emit(payments, Payment(source.account_id, destination.account_id, amount, fee))
    return left


def source_of(payment: Payment) -> str:
    return payment.source


class Audit:
    """Adds up the payments of each account, and the fees of all accounts."""

    paid: int = 0
    fees: PerTask[int] = 0

    def on_event(self, payment: Payment, out: Emit[Finding]) -> None:
        before = self.paid
        self.paid += payment.amount
        self.fees += payment.fee
        if before < WATCHED <= self.paid:
            out(Finding(payment.source, self.paid))


findings = flow("audit", payments).key(source_of).task(Audit).sink("findings")
audited = App("audited_bank", Account, init_accounts, pay, findings)
