"""What if: epochs as they would have been with other requests or other code, beside what was recorded.

Pure: who calls it reads the journal, runs the requests and writes what comes out. The epochs' bounds
stay what they were, and so do the place, the time and the id of every request that was there: clock,
chance and new ids are the same for it. What is compared is bytes; only what differs, and is shown, is
decoded.

A request that had exceeded a limit is run again only where its call or the code is another one: else
it is taken as recorded, without effect, because time and memory depend on the machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar

from penstock.base.ids import EntityKey, Epoch, RequestId
from penstock.engine.execute import Outcome
from penstock.engine.replay import (
    RequestRow,
    ValueDifference,
    attributes_of,
    call_text,
    compare_attributes,
    reply_of,
)
from penstock.model.application import App

SHOWN_MAX: Final = 100
"""Differences of each kind that are kept to be shown; all are counted."""

T = TypeVar("T")


class InsertedRequest(NamedTuple):
    """A request that was not there."""

    request_id: RequestId
    body: bytes


@dataclass(frozen=True, slots=True)
class RequestChanges:
    """What is changed in an epoch's requests.

    Attributes:
        calls: By id, the body that a request has instead of its own; None leaves it out.
        inserted: By the id of the request that they follow, those that come in addition.
    """

    calls: dict[RequestId, bytes | None] = field(default_factory=dict)
    inserted: dict[RequestId, list[InsertedRequest]] = field(default_factory=dict)


UNCHANGED: Final = RequestChanges()


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """An epoch as it shall run.

    Attributes:
        rows: Its requests, in order; an `error` is there only where they are taken as recorded.
        recorded: Beside each what was recorded of it; None: it was inserted.
        left_out: What was recorded and does not run.
    """

    rows: Sequence[RequestRow]
    recorded: Sequence[RequestRow | None]
    left_out: Sequence[RequestRow]


def replay_plan(
    rows: Sequence[RequestRow], changes: RequestChanges, *, other_code: bool
) -> ReplayPlan:
    """Return the course of an epoch whose requests or code are changed."""
    run: list[RequestRow] = []
    recorded: list[RequestRow | None] = []
    left_out: list[RequestRow] = []
    for row in rows:
        body = changes.calls.get(row.request_id, row.body)
        if body is None:
            left_out.append(row)
        else:
            again = other_code or body is not row.body
            run.append(row._replace(body=body, error=None) if again else row)
            recorded.append(row)
        for one in changes.inserted.get(row.request_id, ()):
            run.append(row._replace(request_id=one.request_id, body=one.body, error=None))
            recorded.append(None)
    return ReplayPlan(run, recorded, left_out)


class ReplyDifference(NamedTuple):
    """A request whose reply is another one.

    Attributes:
        call: What runs instead, or what was recorded where nothing does.
        recorded, replayed: The reply, each in a list of its own: empty where there is none.
    """

    epoch: Epoch
    request_id: RequestId
    call: str
    recorded: list[Any]
    replayed: list[Any]


class EntityDifference(NamedTuple):
    """An entity that is another one after the last epoch; findings are as those of a replay."""

    key: EntityKey
    findings: list[ValueDifference]


@dataclass(slots=True)
class DifferenceList(Generic[T]):
    """Differences of one kind: all are counted, the first ones kept."""

    count: int = 0
    shown: list[T] = field(default_factory=list)

    @property
    def truncated(self) -> bool:
        """Whether there are more than are kept."""
        return self.count > len(self.shown)

    def next(self) -> bool:
        """Count one, and say whether it is to be kept."""
        self.count += 1
        return self.count <= SHOWN_MAX


class ReplyDifferences:
    """Replies, compared epoch by epoch.

    Attributes:
        differing: Of requests that ran then and now.
        left_out: Of those that do not run now.
        inserted: Of those that did not run then.
    """

    def __init__(self) -> None:
        self.differing: DifferenceList[ReplyDifference] = DifferenceList()
        self.left_out: DifferenceList[ReplyDifference] = DifferenceList()
        self.inserted: DifferenceList[ReplyDifference] = DifferenceList()

    def compare(self, epoch: Epoch, course: ReplayPlan, outcomes: Sequence[Outcome | None]) -> None:
        """Compare those of an epoch that ran."""
        for row, was, outcome in zip(course.rows, course.recorded, outcomes, strict=True):
            if outcome is None:
                continue
            if was is None:
                _note(self.inserted, epoch, row, None, outcome)
            elif outcome.reply != was.reply or outcome.error != was.error:
                _note(self.differing, epoch, row, was, outcome)
        for row in course.left_out:
            _note(self.left_out, epoch, row, row, None)


def _note(
    found: DifferenceList[ReplyDifference],
    epoch: Epoch,
    row: RequestRow,
    was: RequestRow | None,
    now: Outcome | None,
) -> None:
    if found.next():
        recorded = [] if was is None else [reply_of(was.error, was.reply)]
        replayed = [] if now is None else [reply_of(now.error, now.reply)]
        call = call_text(row.body)
        found.shown.append(ReplyDifference(epoch, row.request_id, call, recorded, replayed))


class StateDiff:
    """How a state that is replayed differs from the recorded one, after every epoch.

    Memory is that of the differences. An entity that comes to be what was recorded is none.

    Attributes:
        recorded: Each entity that differs, as it was recorded (None: it did not exist).
    """

    def __init__(self) -> None:
        self.recorded: dict[EntityKey, bytes | None] = {}

    def follow(
        self,
        before: Mapping[EntityKey, bytes],
        written: Mapping[EntityKey, bytes | None],
        changes: Mapping[EntityKey, bytes | None],
    ) -> None:
        """Take account of an epoch.

        Args:
            before: The replayed state before it.
            written: What it makes of entities now.
            changes: What it was recorded to make of them.
        """
        drift = self.recorded
        if written == changes:
            for key in changes if drift else ():
                drift.pop(key, None)
            return
        for key in {**written, **changes}:
            now = before.get(key)
            was = drift.get(key, now)
            now, was = written.get(key, now), changes.get(key, was)
            if now != was:
                drift[key] = was
            else:
                drift.pop(key, None)


@dataclass(slots=True)
class EntityDifferences:
    """Entities that differ after the last epoch: on both sides, or there on one of them only."""

    changed: DifferenceList[EntityDifference] = field(default_factory=DifferenceList)
    created: DifferenceList[EntityDifference] = field(default_factory=DifferenceList)
    deleted: DifferenceList[EntityDifference] = field(default_factory=DifferenceList)

    @property
    def count(self) -> int:
        """How many there are."""
        return self.changed.count + self.created.count + self.deleted.count


def entity_differences(
    drift: StateDiff, state: Mapping[EntityKey, bytes], recorded_by: App, replayed_by: App
) -> EntityDifferences:
    """Return what differs, in the order of keys, attribute by attribute.

    Args:
        drift: Which entities differ, and what was recorded of them.
        state: The replayed state.
        recorded_by: The application as it was.
        replayed_by: The one that has replayed.
    """
    found = EntityDifferences()
    for key in sorted(drift.recorded):
        was, now = drift.recorded[key], state.get(key)
        kind = found.created if was is None else found.deleted if now is None else found.changed
        if kind.next():
            before = attributes_of(recorded_by, key, was)
            after = attributes_of(replayed_by, key, now)
            kind.shown.append(EntityDifference(key, compare_attributes(key, before, after)))
    return found
