"""The order to erase a person: a control record, which the driver executes; the result is the certificate."""

import hashlib
import time
from contextlib import closing
from typing import ClassVar, Final

import msgspec

from penstock.base.ids import EntityKey, Lsn
from penstock.errors import TimedOut
from penstock.journal.api import newest_epoch
from penstock.log.api import Log
from penstock.model.control import Erase
from penstock.model.reply import Reply
from penstock.orders.order import Place, Report, Way, append_control, settled
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.erasures import Certificate, Erasures, subject_named

ORDER: Final = "erase"
"""The first word of the id of an erasure's control record."""

_LOOK_S: Final = 0.02


def certificates(place: Place) -> list[Certificate]:
    """List the certificates of erasures."""
    directory = DataDirectory(place.settings.data)
    if (name := directory.app_name) is None:
        return []
    with closing(directory.open_journal_of(name)) as journal:
        return Erasures(place.settings.data).every(journal.identity, newest_epoch(journal))


CERTIFICATES: Final = Report(
    path="/erasures",
    name="erasures.list",
    answer=list[Certificate],
    text="All certificates, in order.",
    at=certificates,
)


class ErasureOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Erase a person.

    Deletes an entity of a personal class, and destroys the key of its data. This cannot be undone.

    Attributes:
        subject: The entity of a personal class, such as `User/ada`.
    """

    subject: str

    way: ClassVar[Way] = Way(
        noun="an erasure",
        path="/erasures",
        name="erasures.order",
        result=Certificate,
        text="The key is destroyed; the certificate.",
        example='{"subject": "User/ada"}',
    )

    def carry_out(self, place: Place, timeout_s: float) -> Certificate:
        """Append the control record, and return the certificate when the key is destroyed."""
        app, settings = place.loaded()
        subject, erasures = subject_named(app, self.subject), Erasures(settings.data)
        directory, _ = place.directory()
        deadline = time.monotonic() + timeout_s
        # The key may have belonged to an erased person before: the generation keeps their erasure apart from this one.
        with closing(directory.open_log(settings)) as log:
            reply = _outcome(log, settings, subject, erasures.generation(subject), deadline)
        made: Certificate = reply.value(Certificate)
        # The driver destroys the key after the commit: before it, a crash could lose the deletion and keep the loss.
        while not erasures.is_complete(made):
            if time.monotonic() > deadline:
                raise TimedOut(
                    f"{made.subject} is deleted from epoch {made.epoch} on, and its key is not destroyed yet; the "
                    "driver destroys it when it starts: penstock run"
                )
            time.sleep(_LOOK_S)
        return made


def _outcome(
    log: Log, settings: Config, subject: EntityKey, generation: int, deadline: float
) -> Reply:
    """Append the order, unless it waits already or was executed, and return its outcome; repeat one that has failed."""
    end, failures = log.end(), 0
    while True:
        lsn = request_erasure(log, subject, generation, failures)
        left_s = max(0.0, deadline - time.monotonic())
        reply = settled(settings, lsn, left_s, f"the erasure of {subject}")
        if reply.error is None or reply.lsn >= end:
            return reply
        failures += 1  # it is the reply to an earlier order


def request_erasure(log: Log, subject: EntityKey, generation: int, failures: int = 0) -> Lsn:
    """Append the control record of an erasure, and return its position; a repetition appends nothing.

    Args:
        generation: How often it was erased before.
        failures: How many orders of this erasure have failed.
    """
    number = f"{generation}.{failures}" if failures else str(generation)
    digest = hashlib.blake2b(f"{number}:{subject}".encode(), digest_size=12).hexdigest()
    return append_control(log, ORDER, digest, Erase(subject, generation))
