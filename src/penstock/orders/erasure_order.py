"""The order to erase a person: it is appended to the log, executed by the driver, and answered with the certificate."""

import hashlib
import time
from collections.abc import Callable
from contextlib import closing
from typing import Final

import msgspec

from penstock.base.ids import BEFORE_FIRST, ONLY_PARTITION, EntityKey, Lsn, split_entity_key
from penstock.errors import RequestError, TimedOut, Unencodable
from penstock.journal.tail import JournalTail
from penstock.log.api import Log
from penstock.model.application import App, unknown
from penstock.model.control import Erase
from penstock.model.reply import Reply
from penstock.orders.control_append import append_control
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.erasures import Certificate, Erasures

ORDER: Final = "erase"
"""The first word of the id of an erasure's control record."""

_LOOK_S: Final = 0.02


class ErasureOrder(msgspec.Struct, forbid_unknown_fields=True):
    """The body of an order that a gateway takes.

    Attributes:
        subject: The entity of a personal class, such as `User/ada`.
    """

    subject: str


def certificates(settings: Config) -> list[Certificate]:
    """Return the certificates of all committed erasures, in order.

    Raises:
        Corrupt: A file of the data directory is damaged.
        OperationalError: The disk fails.
    """
    directory = DataDirectory(settings.data)
    if (name := directory.app_name) is None:
        return []
    with closing(directory.open_journal_of(name)) as journal:
        last = journal.last()
        identity = journal.identity
    return Erasures(settings.data).every(identity, BEFORE_FIRST if last is None else last.epoch)


def erase(
    settings: Config, app: App, subject: EntityKey, generation: int, timeout_s: float
) -> Certificate:
    """Append the control record of an erasure, and return its certificate when the key is destroyed.

    The order is durable when this waits: a driver that starts later executes it, too.

    Args:
        settings: The settings, which name the data directory.
        app: The application.
        subject: The subject, as `subject_named` returns it.
        generation: How often it had been erased when the order was given.
        timeout_s: How long to wait for the driver.

    Raises:
        RequestError: The subject was erased meanwhile.
        TimedOut: No driver has executed the erasure in time.
        OperationalError: Log or journal cannot be used.
    """
    directory, erasures = DataDirectory(settings.data), Erasures(settings.data)
    deadline = time.monotonic() + timeout_s
    with (
        closing(directory.open_log(settings)) as log,
        closing(directory.open_journal(app)) as journal,
        closing(JournalTail(journal)) as tail,
    ):

        def wait(lsn: Lsn) -> Reply:
            left_s = max(0.0, deadline - time.monotonic())
            try:
                return tail.wait((ONLY_PARTITION, lsn), int(left_s * 1_000))
            except TimedOut:
                raise TimedOut(
                    f"no driver has erased {subject} within {timeout_s:g} s; the order is durable at position {lsn} and "
                    f"waits for: penstock run {settings.app}"
                ) from None

        made: Certificate = _outcome(log, wait, subject, generation).value(Certificate)
    while not erasures.is_complete(made):  # the driver destroys the key after the commit
        if time.monotonic() > deadline:
            raise TimedOut(
                f"{made.subject} is deleted from epoch {made.epoch} on, and its key is not destroyed yet; the driver "
                "destroys it when it starts: penstock run"
            )
        time.sleep(_LOOK_S)
    return made


def _outcome(log: Log, wait: Callable[[Lsn], Reply], subject: EntityKey, generation: int) -> Reply:
    """Append the order, unless it waits already or was executed, and return its outcome; repeat one that has failed.

    Args:
        log: The log.
        wait: Returns the reply to a position.
        subject: The subject.
        generation: How often it had been erased when the order was given.
    """
    end, failures = log.end(), 0
    reply = wait(request_erasure(log, subject, generation, failures))
    while reply.error is not None and reply.lsn < end:  # of an earlier order
        failures += 1
        reply = wait(request_erasure(log, subject, generation, failures))
    return reply


def subject_named(app: App, text: str) -> EntityKey:
    """Return the subject that a text names: `User/ada`.

    Raises:
        RequestError: It names no entity of a personal class.
    """
    given, key = split_entity_key(EntityKey(text))
    name = app.stored_name(given)
    personal = [each for each, entity_type in app.readable.items() if entity_type.personal]
    if name not in personal:
        if name in app.readable:
            raise RequestError(
                f"{given} is not a personal class, so its data are not encrypted and cannot be erased; delete the entity"
            )
        raise RequestError(unknown("personal class", given, personal))
    entity_type = app.readable[name]
    try:
        return EntityKey(entity_type.prefix + entity_type.key_text(entity_type.key_at(key)))
    except Unencodable as error:
        raise RequestError(f"{text}: {error}; write a subject as User/ada") from error


def request_erasure(log: Log, subject: EntityKey, generation: int, failures: int = 0) -> Lsn:
    """Append the control record of an erasure, and return its position; a repetition appends nothing.

    Args:
        log: The log.
        subject: The subject.
        generation: How often it was erased before.
        failures: How many orders of this erasure have failed.

    Raises:
        LogUnavailable: The log cannot be written.
    """
    number = f"{generation}.{failures}" if failures else str(generation)
    digest = hashlib.blake2b(f"{number}:{subject}".encode(), digest_size=12).hexdigest()
    return append_control(log, ORDER, digest, Erase(subject, generation))
