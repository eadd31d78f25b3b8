"""The waiting list: a workflow that gives each free time to the first patient who waits for it."""

from datetime import datetime

import msgspec

from penstock import Emit, flow, stream

from .people import Patient, Practitioner


class Wish(msgspec.Struct, frozen=True, tag=True):
    """A patient wants the next time of a practitioner that becomes free."""

    practitioner: Practitioner
    patient: Patient


class Freed(msgspec.Struct, frozen=True, tag=True):
    """A time of a practitioner is free again."""

    practitioner: Practitioner
    starts: datetime


class Offer(msgspec.Struct, frozen=True):
    """A free time for a patient."""

    practitioner: Practitioner
    patient: Patient
    starts: datetime


def practitioner_of(event: Wish | Freed) -> Practitioner:
    """Give each practitioner a list."""
    return event.practitioner


class WaitingList:
    """The patients who wait for a practitioner."""

    patients: list[Patient] = []

    def on_event(self, event: Wish | Freed, out: Emit[Offer]) -> None:
        """Put a patient on the list, or take the first one off it."""
        if isinstance(event, Wish):
            if event.patient not in self.patients:
                self.patients.append(event.patient)
        elif self.patients:
            out(Offer(event.practitioner, self.patients.pop(0), event.starts))


waiting = stream("waiting", Wish | Freed)
offered = flow("waiting_list", waiting).key(practitioner_of).task(WaitingList).sink("offered")
