"""Rooms, holds and appointments."""

from datetime import datetime, timedelta
from enum import Enum

from penstock import (
    Aborted,
    Entity,
    Principal,
    call,
    emit,
    every,
    index,
    internal,
    key,
    now,
    readonly,
    reference,
    send,
    send_at,
    transactional,
    unique,
)

from .invoices import Service, Visit, visits
from .outside import post
from .people import Patient, Practitioner, may_act_for
from .waiting import Freed, Wish, offered, waiting

LENGTH = timedelta(minutes=30)
HOLD = timedelta(minutes=15)
NOTICE = timedelta(days=1)
MAILS_MAX = 200


class NotFree(Aborted):
    """The time is taken, or the practitioner does not work then."""

    code = "not-free"


class TooLate(Aborted):
    """The time has passed, or is too near."""

    code = "late"


class State(Enum):
    """The state of an appointment."""

    BOOKED = "booked"
    REMINDED = "reminded"
    DONE = "done"


class Room(Entity):
    """A room, which one patient uses at a time."""

    name: str = key()
    floor: int = 0

    by_floor = index(order="floor")


class Hold(Entity, internal=("create", "upsert", "delete")):
    """A time that is kept for a patient, until it is confirmed or expires."""

    hold_id: str = key()
    patient: Patient = reference(exists=True)
    practitioner: Practitioner = reference(exists=True)
    room: Room = reference(exists=True)
    starts: datetime
    until: datetime

    at = unique("practitioner", "starts")
    in_room = unique("room", "starts")

    def allows(self, principal: Principal) -> bool:
        """Say whether a caller may act for the patient."""
        return may_act_for(self.patient, principal)

    def confirm(self) -> "Appointment":
        """Make the hold an appointment."""
        if now() >= self.until:
            raise TooLate(f"{self.hold_id} expired at {self.until}")
        booked = Appointment.create(
            patient=self.patient,
            practitioner=self.practitioner,
            room=self.room,
            starts=self.starts,
        )
        self.delete()
        return booked


class Appointment(Entity, internal=("create", "upsert", "delete")):
    """A visit of a patient, booked or done."""

    appointment_id: str = key()
    patient: Patient = reference(exists=True)
    practitioner: Practitioner = reference(exists=True)
    room: Room = reference(exists=True)
    starts: datetime
    state: State = State.BOOKED

    at = unique("practitioner", "starts")
    in_room = unique("room", "starts")
    by_patient = index("patient", order="starts")
    by_state = index("state", order="starts")

    def allows(self, principal: Principal) -> bool:
        """Say whether a caller may act for the patient."""
        return may_act_for(self.patient, principal)

    def cancel(self) -> None:
        """Give the time back, at least a day before; the first patient who waits gets it."""
        if now() > self.starts - NOTICE:
            raise TooLate(f"{self.appointment_id} starts at {self.starts}")
        emit(waiting, Freed(self.practitioner, self.starts))
        self.delete()

    def finish(self, service: Service) -> None:
        """Note that the patient was here; the invoice follows."""
        if self.state is State.DONE:
            raise TooLate(f"{self.appointment_id} is done")
        self.state = State.DONE
        emit(visits, Visit(self.appointment_id, self.patient, service))


@transactional
def hold(patient: Patient, practitioner: Practitioner, starts: datetime) -> Hold:
    """Keep a time for a patient."""
    patient.admit()
    if starts <= now():
        raise TooLate(f"{starts} has passed")
    if not practitioner.works_at(starts, LENGTH):
        raise NotFree(f"{practitioner.name} does not begin at {starts}")
    if Hold.at(practitioner, starts) or Appointment.at(practitioner, starts):
        raise NotFree(f"{practitioner.name} has a patient at {starts}")
    for room in Room.by_floor():
        if not Hold.in_room(room, starts) and not Appointment.in_room(room, starts):
            break
    else:
        raise NotFree(f"no room is free at {starts}")
    kept = Hold.create(
        patient=patient, practitioner=practitioner, room=room, starts=starts, until=now() + HOLD
    )
    send_at(kept.until, expire, kept)
    return kept


@internal
@transactional
def expire(kept: Hold) -> None:
    """End a hold that was not confirmed."""
    if Hold.exists(kept):
        if kept.starts > now():
            emit(waiting, Freed(kept.practitioner, kept.starts))
        kept.delete()


@readonly
@transactional
def appointments(patient: Patient, count: int = 20) -> list[Appointment]:
    """Return the next appointments of a patient."""
    patient.admit()
    return [one for one in Appointment.by_patient(patient) if one.starts > now()][:count]


@transactional
def wait_for(patient: Patient, practitioner: Practitioner) -> None:
    """Put a patient on the waiting list of a practitioner."""
    patient.admit()
    emit(waiting, Wish(practitioner, patient))


@internal
@transactional
def offer(patient: Patient, practitioner: Practitioner, starts: datetime) -> None:
    """Hold a free time for a patient who waits, and say so by mail."""
    if not Patient.exists(patient):  # erased while on the list: the next patient gets the time
        emit(waiting, Freed(practitioner, starts))
        return
    try:
        kept = hold(patient, practitioner, starts)
    except (NotFree, TooLate):  # another caller was faster: the patient waits again
        emit(waiting, Wish(practitioner, patient))
        return
    text = (
        f"{practitioner.name} is free at {starts:%d %B, %H:%M}. Confirm before {kept.until:%H:%M}."
    )
    send(post, [patient.email], "A free appointment", text)


@every("1h")
def remind(due: datetime) -> None:
    """Remind the patients of the appointments of the next day."""
    for one in Appointment.by_state(State.BOOKED, first=MAILS_MAX):
        if one.starts > due + NOTICE:
            break
        if not Patient.exists(one.patient):  # erased: another patient may have the time
            one.delete()
            continue
        one.state = State.REMINDED
        text = (
            f"{one.practitioner.name} expects you on {one.starts:%d %B at %H:%M}, {one.room.name}."
        )
        send(post, [one.patient.email], "Your appointment", text)


offers = call(offered, offer, lambda offer: (offer.patient, offer.practitioner, offer.starts))
