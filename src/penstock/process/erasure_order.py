"""The order to erase a person: it is appended to the log, executed by the driver, and answered with the certificate."""

import time
from collections.abc import Callable
from contextlib import closing
from typing import Final

from penstock.base.ids import BEFORE_FIRST, ONLY_PARTITION, EntityKey, Lsn
from penstock.errors import TimedOut
from penstock.journal.tail import JournalTail
from penstock.log.api import Log
from penstock.model.application import App
from penstock.model.reply import Reply
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.erasures import Certificate, Erasures, request_erasure

_LOOK_S: Final = 0.02


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
