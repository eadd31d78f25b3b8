"""Patients and practitioners."""

from datetime import UTC, datetime, time, timedelta

from penstock import Aborted, Entity, Principal, internal, key, principal, unique

DESK = frozenset({"", "desk"})
"""The principals that act for every patient: the application itself, and the key of the front desk."""

SATURDAY = 5


class NotYours(Aborted):
    """The caller of a function has no right to the patient that it gets."""

    code = "not-yours"


class Patient(Entity, personal=True, internal=("upsert", "delete")):
    """A person. Her data are encrypted with a key of her own, so that `penstock erase` can erase them."""

    patient_id: str = key()
    name: str
    email: str

    by_email = unique("email")

    def allows(self, principal: Principal) -> bool:
        """Say whether a caller is the patient or the desk."""
        return may_act_for(self, principal)

    def move(self, email: str) -> None:
        """Change the address of the patient."""
        self.email = email

    @internal
    def admit(self) -> None:
        """Refuse a caller whom the patient does not allow: a function has no row of which Penstock asks `allows`."""
        if not self.allows(principal()):
            raise NotYours(f"{self.patient_id} is another patient")


def may_act_for(patient: Patient, principal: Principal) -> bool:
    """Say whether a caller is a patient or the desk; it reads the key alone, so the desk may act for an erased patient."""
    return principal.id in DESK or principal.id == f"@{patient.patient_id}"


class Practitioner(Entity):
    """A doctor, with the same hours on each working day, in UTC."""

    name: str = key()
    opens: time = time(9)
    closes: time = time(17)

    def works_at(self, starts: datetime, length: timedelta) -> bool:
        """Say whether an appointment of some length can begin at a time."""
        day = datetime.combine(starts.date(), time(), UTC)
        return (
            starts.weekday() < SATURDAY
            and self.opens <= starts.time()
            and (starts + length).time() <= self.closes
            and (starts - day) % length == timedelta()
        )
