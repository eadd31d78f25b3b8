"""The order to erase a person: a control record, which the driver executes; the result is the certificate."""

import hashlib
import time
from contextlib import closing
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from penstock.base.ids import EntityKey, Epoch, Lsn
from penstock.errors import TimedOut
from penstock.journal.api import newest_epoch
from penstock.log.api import Log
from penstock.log.clock import wall_clock_us
from penstock.model.application import App
from penstock.model.control import Erase
from penstock.model.reply import Reply
from penstock.orders.order import Place, Report, Way, append_control, settled
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.erasures import PASSED, Certificate, Erasures, ViewPassage, subject_named
from penstock.process.view_files import ViewState
from penstock.process.view_standing import STARTING, ViewStanding, view_standings

ORDER: Final = "erase"
"""The first word of the id of an erasure's control record."""

_LOOK_S: Final = 0.02
_LOOK_AT_VIEWS_S: Final = 0.1
_PASS_LATER: Final = frozenset(
    {ViewState.FILLING, ViewState.FOLLOWING, ViewState.WAITING, STARTING}
)
"""The states of views that may pass an erasure without an operator."""


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
        text="The key is destroyed; the certificate, with the views that have passed the erasure, and those that have not.",
        example='{"subject": "User/ada"}',
    )

    def carry_out(self, place: Place, timeout_s: float) -> Certificate:
        """Append the control record, and return the certificate when the key is destroyed and the views have passed it.

        A view that cannot pass it before an operator has acted, or in time, is named in the certificate.
        """
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
        return _passed_by_views(place, app, made, deadline)


def _passed_by_views(
    place: Place, app: App, certificate: Certificate, deadline: float
) -> Certificate:
    """Wait until the views with personal data have passed an erasure, or cannot; note in the certificate which have not."""
    data, epoch = place.settings.data, Epoch(certificate.epoch)
    while True:
        views, late = _views_about(data, app, epoch)
        if place.told is not None:
            done = len(views) - len(late) + sum(each.filled or 0.0 for each in late)
            place.told(round(100 * done), 100 * len(views))
        waiting = [each for each in late if each.state in _PASS_LATER]
        if not waiting or time.monotonic() > deadline:
            break
        time.sleep(_LOOK_AT_VIEWS_S)
    for _ in range(2):  # a view may have passed it while it was named as late
        passages = [_passage(each, passed=each not in late) for each in views]
        Erasures(data).note({certificate.hash}, passages)
        views, late = _views_about(data, app, epoch)
    # What the appliers have noted has their epochs.
    with closing(DataDirectory(data).open_journal_of(app.name)) as journal:
        stored = Erasures(data).every(journal.identity, newest_epoch(journal))
    return next((each for each in stored if each.hash == certificate.hash), certificate)


def _views_about(
    data: Path, app: App, epoch: Epoch
) -> tuple[list[ViewStanding], list[ViewStanding]]:
    """Return the views with personal data, and those of them that have not passed the erasure of an epoch."""
    views = [each for each in view_standings(data, epoch) if _concerns(each, app)]
    return views, [each for each in views if not each.target or epoch in each.unerased]


def _concerns(view: ViewStanding, app: App) -> bool:
    """Say whether a view may show personal data; of one whose applier has never run here, only its code tells."""
    plan = app.views.get(view.name)
    return view.personal or (not view.target and (plan is None or plan.target.personal))


def _passage(view: ViewStanding, *, passed: bool) -> ViewPassage:
    state = PASSED if passed else view.state
    why = ("", "") if passed else (view.reason, view.remedy)
    return ViewPassage(view.name, view.target, state, view.epoch, wall_clock_us(), *why)


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
