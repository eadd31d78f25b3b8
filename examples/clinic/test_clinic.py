"""The clinic without Spark: holds expire, nobody sits in a taken room, and every visit is paid once."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Aborted, Answer, Final, Forbidden, Mailed, NotUnique
from penstock.testing import Kit

from . import app
from .appointments import (
    HOLD,
    LENGTH,
    NOTICE,
    Appointment,
    Hold,
    Room,
    appointments,
    hold,
    offer,
    wait_for,
)
from .invoices import Invoice, Service
from .outside import card, post
from .people import Patient, Practitioner

START = datetime(2026, 3, 2, 8, tzinfo=UTC)
MORNING = datetime(2026, 3, 4, 9, tzinfo=UTC)
ADA, BOB, EVE = Patient("ada"), Patient("bob"), Patient("eve")
DR_GREY, DR_WHO = Practitioner("grey"), Practitioner("who")


class Outside:
    """A mail server and a provider of cards that note what they get."""

    def __init__(self) -> None:
        self.mails: list[tuple[str, str]] = []
        self.charges: list[dict[str, Any]] = []
        self.answer: Answer | None = None
        self.problem: Exception | None = None

    def post(self, to: list[str], subject: str, text: str, **_: Any) -> Mailed:
        self.mails.append((to[0], subject))
        return Mailed(f"<{len(self.mails)}@clinic.example>")

    def card(self, verb: str, path: str, *, json: dict[str, Any], **_: Any) -> Answer:
        if self.problem is not None:
            raise self.problem
        if self.answer is not None:
            return self.answer
        self.charges.append(json)
        return Answer(200, b'{"id": "ch_%d"}' % len(self.charges))


@pytest.fixture
def outside() -> Outside:
    return Outside()


@pytest.fixture
def kit(outside: Outside) -> Kit:
    """Give a clinic of one room, two practitioners and three patients."""
    kit = Kit(app, start=START, effects={post: outside.post, card: outside.card})
    kit.call(Room.create, "r1")
    for practitioner in (DR_GREY, DR_WHO):
        kit.call(Practitioner.create, practitioner.name)
    for patient in (ADA, BOB, EVE):
        name = patient.patient_id
        kit.call(Patient.create, name, name=name.title(), email=f"{name}@example.org")
    return kit


def booked(kit: Kit, patient: Patient, starts: datetime = MORNING) -> Appointment:
    return kit.call(kit.call(hold, patient, DR_GREY, starts).confirm)


def test_hold_keeps_practitioner_and_room(kit: Kit) -> None:
    """Until it expires, also for another practitioner, because there is one room."""
    kit.call(hold, ADA, DR_GREY, MORNING)
    with pytest.raises(Aborted, match="grey has a patient") as refused:
        kit.call(hold, BOB, DR_GREY, MORNING)
    assert refused.value.code == "not-free"
    with pytest.raises(Aborted, match="no room is free"):
        kit.call(hold, BOB, DR_WHO, MORNING)
    kit.clock.advance(HOLD)
    kit.settle()
    assert kit.entities("Hold") == {}
    kit.call(hold, BOB, DR_WHO, MORNING)


@pytest.mark.parametrize(
    "starts",
    [
        MORNING.replace(hour=8, minute=30),
        MORNING.replace(hour=17),
        MORNING.replace(minute=10),
        MORNING + timedelta(days=3),
    ],
)
def test_practitioner_has_hours(kit: Kit, starts: datetime) -> None:
    """An appointment begins at a full or half hour of a working day."""
    with pytest.raises(Aborted, match="grey does not begin") as refused:
        kit.call(hold, ADA, DR_GREY, starts)
    assert refused.value.code == "not-free"


def test_appointments_are_found_in_order(kit: Kit) -> None:
    """The index has those of one patient; past ones are left out."""
    later = booked(kit, ADA, MORNING + timedelta(hours=1))
    first = booked(kit, ADA)
    booked(kit, BOB, MORNING + timedelta(hours=2))
    assert kit.call(appointments, ADA) == [first, later]
    kit.clock.set(MORNING)
    assert kit.call(appointments, ADA) == [later]


def test_patient_is_reminded_once(kit: Kit, outside: Outside) -> None:
    """A day before, by mail."""
    booked(kit, ADA)
    for _ in range(3):
        kit.clock.advance(timedelta(hours=12))
        kit.settle()
    assert outside.mails == [("ada@example.org", "Your appointment")]


def test_visit_is_paid_once(kit: Kit, outside: Outside) -> None:
    """The first visit costs more; each payment belongs to one invoice."""
    services: tuple[Service, ...] = ("consultation", "control")
    for day, service in enumerate(services):
        one = booked(kit, ADA, MORNING + timedelta(days=day))
        kit.call(Appointment.finish, one, service)
        with pytest.raises(Aborted, match="is done"):
            kit.call(one.finish, service)
    assert [charge["cents"] for charge in outside.charges] == [11_000, 4_500]
    invoices = kit.entities("Invoice").values()
    assert [each["state"].value for each in invoices] == ["paid", "paid"]
    for number in kit.entities("Invoice"):
        kit.call(Invoice(number).pay)
    assert len(kit.entities("Payment")) == len(outside.charges) == 2


@pytest.mark.parametrize(
    ("answer", "problem"),
    [(Answer(402), "the card is declined"), (Final("no such shop"), "no such shop")],
)
def test_failed_charge_is_told_and_tried_again(
    kit: Kit, outside: Outside, answer: Answer | Final, problem: str
) -> None:
    """The invoice has the reason, its patient gets a mail when it is due, and pays later."""
    if isinstance(answer, Final):
        outside.problem = answer
    else:
        outside.answer = answer
    visit = booked(kit, ADA)
    kit.call(visit.finish, "vaccination")
    invoice = kit.entity("Invoice", visit.appointment_id)
    assert invoice is not None
    assert problem in invoice["problem"]
    for _ in range(10):
        kit.clock.advance(timedelta(days=2))
        kit.settle()
    assert ("ada@example.org", "Your invoice") in outside.mails
    outside.answer = outside.problem = None
    kit.call(Invoice(visit.appointment_id).pay)
    assert len(kit.entities("Payment")) == 1


def test_impatient_patient_pays_once(kit: Kit, outside: Outside) -> None:
    """While the provider has not answered, further requests to pay begin no other charge."""
    visit = booked(kit, ADA)
    waiting = kit.runtime.call  # unlike `kit.call`, it calls no effects
    waiting(visit.finish, "vaccination")
    for _ in range(3):
        waiting(Invoice(visit.appointment_id).pay)
    kit.settle()
    assert len(outside.charges) == len(kit.entities("Payment")) == 1


def test_first_who_waits_gets_the_freed_time(kit: Kit, outside: Outside) -> None:
    """If she lets the offer expire, the next one gets it."""
    visit = booked(kit, ADA)
    for patient in (BOB, EVE, BOB):
        kit.call(wait_for, patient, DR_GREY)
    kit.call(visit.cancel)
    (offered,) = kit.entities("Hold").values()
    assert (offered["patient"], offered["starts"]) == ("bob", MORNING)
    kit.clock.advance(HOLD)
    kit.settle()
    (offered,) = kit.entities("Hold").values()
    assert offered["patient"] == "eve"
    assert [to for to, _ in outside.mails] == ["bob@example.org", "eve@example.org"]


def test_offer_passes_over_the_erased_and_the_slow(kit: Kit) -> None:
    """An erased patient gets no offer; who comes too late stays on the list."""
    visit = booked(kit, ADA)
    for patient in (EVE, BOB):
        kit.call(wait_for, patient, DR_GREY)
    kit.erase("Patient", "eve")
    kit.call(visit.cancel)
    (offered,) = kit.entities("Hold").values()
    assert offered["patient"] == "bob"
    kit.call(offer, ADA, DR_GREY, MORNING)  # bob has it
    assert kit.task("waiting_list.WaitingList", DR_GREY)["patients"] == ["ada"]


def test_late_cancellation_is_refused(kit: Kit) -> None:
    """An appointment can be cancelled until a day before."""
    visit = booked(kit, ADA)
    kit.clock.set(MORNING - NOTICE + timedelta(minutes=1))
    with pytest.raises(Aborted, match="starts at") as refused:
        kit.call(visit.cancel)
    assert refused.value.code == "late"


def test_patient_reaches_her_own_rows(kit: Kit) -> None:
    """A token names the patient; the desk acts for all, and another key for none."""
    visit, other = booked(kit, ADA), booked(kit, BOB, MORNING + LENGTH)
    kit.call(visit.finish, "control")
    held = kit.call(hold, ADA, DR_GREY, MORNING + 2 * LENGTH)
    rows: list[Patient | Hold | Appointment | Invoice] = [
        ADA,
        held,
        visit,
        Invoice(visit.appointment_id),
    ]
    for row in rows:
        for stranger in ("@bob", "ada", "shop"):
            with pytest.raises(Forbidden, match=f"{stranger} may not use {type(row).__name__}"):
                kit.get(row, acting_as=stranger)
        assert row in kit.page(type(row), acting_as="@ada").entities
        assert row not in kit.page(type(row), acting_as="@bob").entities
        assert row in kit.page(type(row), acting_as="desk").entities
    assert kit.page(Appointment, acting_as="@bob").entities == [other]
    ada, bob = kit.acting_as("@ada"), kit.acting_as("@bob")
    uses: list[Callable[[Any], object]] = [
        lambda call: call(ADA.move, "new@example.org"),
        lambda call: call(Invoice(visit.appointment_id).pay),
        lambda call: call(visit.cancel),
        lambda call: call(held.confirm),
    ]
    for use in uses:
        with pytest.raises(Forbidden):
            use(bob)
        use(ada)
    with pytest.raises(Forbidden):
        bob(Patient.create, "dan", name="Dan", email="dan@example.org")


def test_function_asks_the_patient_that_it_gets(kit: Kit) -> None:
    visit = booked(kit, ADA)
    ada, bob, desk = (kit.acting_as(name) for name in ("@ada", "@bob", "desk"))
    for refused in (
        lambda: bob(appointments, ADA),
        lambda: bob(wait_for, ADA, DR_GREY),
        lambda: bob(hold, ADA, DR_GREY, MORNING + timedelta(hours=1)),
    ):
        with pytest.raises(Aborted) as error:
            refused()
        assert error.value.code == "not-yours"
    assert ada(appointments, ADA) == desk(appointments, ADA) == [visit]


def test_desk_acts_for_the_erased(kit: Kit) -> None:
    """The key of a patient outlives her data, so the right of her appointment has an answer."""
    visit = booked(kit, ADA)
    kit.erase("Patient", "ada")
    kit.acting_as("desk")(visit.cancel)
    assert kit.entities("Appointment") == {}


def test_address_belongs_to_one_patient(kit: Kit) -> None:
    with pytest.raises(NotUnique, match="Patient 'bob' has it"):
        kit.call(ADA.move, "bob@example.org")


def test_erased_patient_stops_no_mail_to_others(kit: Kit, outside: Outside) -> None:
    """Her appointment and her invoice are passed over, and another person may have her address."""
    outside.answer = Answer(402)
    for number, patient in enumerate((ADA, BOB)):
        kit.call(booked(kit, patient, MORNING + number * LENGTH).finish, "control")
        booked(kit, patient, MORNING + (2 + number) * LENGTH)
    kit.erase("Patient", "ada")
    kit.call(EVE.move, "ada@example.org")
    for _ in range(9):
        kit.clock.advance(timedelta(days=2))
        kit.settle()
    mails = [("bob@example.org", "Your appointment"), ("bob@example.org", "Your invoice")]
    assert outside.mails == mails
    assert len(kit.entities("Appointment")) == 3
