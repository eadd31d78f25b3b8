"""Invoices and payments: a visit has a price, and the card of the patient is charged."""

from datetime import date, datetime, timedelta
from enum import Enum
from typing import Literal, TypeAlias

import msgspec

from penstock import (
    AskFailed,
    Emit,
    Entity,
    Principal,
    ask,
    call,
    cron,
    emit,
    flow,
    index,
    internal,
    key,
    now,
    reference,
    send,
    stream,
    transactional,
    unique,
)

from .outside import card, post
from .people import Patient, may_act_for

Service: TypeAlias = Literal["consultation", "control", "vaccination"]

CENTS: dict[Service, int] = {"consultation": 9_000, "control": 4_500, "vaccination": 3_000}
FIRST_VISIT = 2_000
DAYS = timedelta(days=14)
MAILS_MAX = 200


class Visit(msgspec.Struct, frozen=True):
    """A patient was here."""

    appointment_id: str
    patient: Patient
    service: Service


class Bill(msgspec.Struct, frozen=True):
    """The price of a visit."""

    number: str
    patient: Patient
    cents: int


class Charge(msgspec.Struct, frozen=True):
    """The outcome of charging a card: the id of the payment, or the reason of its failure."""

    number: str
    payment_id: str = ""
    problem: str = ""


visits = stream("visits", Visit)
issued = stream("issued", Bill)


class State(Enum):
    """The state of an invoice; one whose charge has failed is open."""

    CHARGING = "charging"
    OPEN = "open"
    PAID = "paid"
    VOID = "void"


class Invoice(Entity, internal=("create", "upsert", "delete")):
    """An invoice for a visit; its number is the id of the appointment."""

    number: str = key()
    patient: Patient
    cents: int
    due: date
    state: State = State.CHARGING
    problem: str = ""

    by_patient = index("patient", order="due")
    by_state = index("state", order="due")

    def allows(self, principal: Principal) -> bool:
        """Say whether a caller may act for the patient."""
        return may_act_for(self.patient, principal)

    def pay(self) -> None:
        """Charge the card of the patient again, unless a charge is under way: each charge is another payment."""
        if self.state is State.OPEN:
            self.state = State.CHARGING
            emit(issued, Bill(self.number, self.patient, self.cents))

    @internal
    def settle(self, charge: Charge) -> None:
        """Note the outcome of a charge."""
        self.problem = charge.problem
        self.state = State.PAID if charge.payment_id else State.OPEN
        if charge.payment_id:
            Payment.create(charge.payment_id, invoice=self, cents=self.cents)


class Payment(Entity, internal=True):
    """A charge of a card that has succeeded."""

    payment_id: str = key()
    invoice: Invoice = reference(exists=True)
    cents: int

    of = unique("invoice")


class Prices:
    """The price of each visit; the first visit of a patient takes longer."""

    visits: int = 0

    def on_event(self, visit: Visit, out: Emit[Bill]) -> None:
        """Give a visit its price."""
        first = FIRST_VISIT if self.visits == 0 else 0
        self.visits += 1
        out(Bill(visit.appointment_id, visit.patient, CENTS[visit.service] + first))


class Till:
    """Charges the cards."""

    async def on_event(self, bill: Bill, out: Emit[Charge]) -> None:
        """Charge a card, and publish the outcome."""
        body = {"invoice": bill.number, "patient": bill.patient.patient_id, "cents": bill.cents}
        try:
            answer = await ask(card, "POST", "/charges", json=body)
        except AskFailed as error:
            out(Charge(bill.number, problem=str(error)))
            return
        if answer.status == 402:
            out(Charge(bill.number, problem="the card is declined"))
        else:
            out(Charge(bill.number, payment_id=answer.json()["id"]))


@internal
@transactional
def issue(number: str, patient: Patient, cents: int) -> None:
    """Write the invoice of a visit, and begin to collect it."""
    Invoice.create(number, patient=patient, cents=cents, due=now().date() + DAYS)
    emit(issued, Bill(number, patient, cents))


@cron("0 8 * * 1-5", zone="Europe/Berlin")
def dun(due: datetime) -> None:
    """Remind the patients of the invoices that are due."""
    for one in Invoice.by_state(State.OPEN, first=MAILS_MAX):
        if one.due >= due.date():
            break
        if not Patient.exists(one.patient):  # erased: there is no address any more
            one.state = State.VOID
            continue
        one.due = due.date() + DAYS
        text = f"Invoice {one.number} of {one.cents / 100:.2f} EUR is due. {one.problem}"
        send(post, [one.patient.email], "Your invoice", text)


def patient_of(visit: Visit) -> Patient:
    """Count the visits of each patient."""
    return visit.patient


priced = flow("prices", visits).key(patient_of).task(Prices).sink("priced")
bills = call(priced, issue, lambda bill: (bill.number, bill.patient, bill.cents))
charges = flow("till", issued).task(Till).sink("charges")
charged = call(charges, Invoice.settle, lambda charge: (Invoice(charge.number), charge))
