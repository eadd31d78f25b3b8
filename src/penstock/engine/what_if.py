"""What-if: compares recorded epochs with a replay that has other requests or other code.

This module does no I/O: the caller reads the journal, runs the requests and writes the results. Epochs
keep their bounds, and each recorded request keeps its position, time and id, so its clock, random
numbers and new ids are the same. Results are compared as bytes; only differences to show are decoded.

A request that exceeded a limit runs again only if its call or the code has changed. Otherwise its
recorded outcome is used, without effect, because time and memory depend on the machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar

from penstock.base.ids import EntityKey, Epoch, RequestId, split_entity_key
from penstock.engine.execute import Outcome
from penstock.engine.replay import (
    RequestRow,
    ValueDifference,
    attributes_of,
    compare_attributes,
    reply_of,
)
from penstock.engine.request_text import call_text
from penstock.model.application import App

SHOWN_MAX: Final = 100
"""Differences of each category that are kept to be shown; all are counted."""

T = TypeVar("T")


class InsertedRequest(NamedTuple):
    """A request to add."""

    request_id: RequestId
    body: bytes


@dataclass(frozen=True, slots=True)
class RequestChanges:
    """Changes to the requests of an epoch.

    Attributes:
        calls: The new body of a request, by its id; None removes the request.
        inserted: The requests to add, by the id of the request that they follow.
    """

    calls: dict[RequestId, bytes | None] = field(default_factory=dict)
    inserted: dict[RequestId, list[InsertedRequest]] = field(default_factory=dict)


UNCHANGED: Final = RequestChanges()


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The requests that a replay of one epoch runs.

    Attributes:
        rows: The requests, in order; a row with an `error` is not run, and keeps its outcome.
        recorded: The recorded request of each row; None for an added request.
    """

    rows: Sequence[RequestRow]
    recorded: Sequence[RequestRow | None]
    left_out: Sequence[RequestRow]


def replay_plan(
    rows: Sequence[RequestRow], changes: RequestChanges, *, other_code: bool
) -> ReplayPlan:
    """Return the plan of an epoch with changed requests or code."""
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
        for inserted in changes.inserted.get(row.request_id, ()):
            run.append(row._replace(request_id=inserted.request_id, body=inserted.body, error=None))
            recorded.append(None)
    return ReplayPlan(run, recorded, left_out)


class ReplyDifference(NamedTuple):
    """A request whose reply differs.

    Attributes:
        call: The call that was replayed, or the recorded call if it was removed.
        recorded, replayed: A list with the reply; an empty list without a reply.
    """

    epoch: Epoch
    request_id: RequestId
    call: str
    recorded: list[Any]
    replayed: list[Any]


class EntityDifference(NamedTuple):
    """An entity that differs after the last epoch, with the differences of its attributes."""

    key: EntityKey
    findings: list[ValueDifference]


@dataclass(slots=True)
class DifferenceList(Generic[T]):
    """Differences of one category: all are counted, and the first are kept."""

    count: int = 0
    shown: list[T] = field(default_factory=list)

    @property
    def truncated(self) -> bool:
        """Whether there are more than are kept."""
        return self.count > len(self.shown)

    def next(self) -> bool:
        """Count a difference, and return whether to keep it."""
        self.count += 1
        return self.count <= SHOWN_MAX


class ReplyDifferences:
    """Replies, compared epoch by epoch."""

    def __init__(self) -> None:
        self.differing: DifferenceList[ReplyDifference] = DifferenceList()
        self.left_out: DifferenceList[ReplyDifference] = DifferenceList()
        self.inserted: DifferenceList[ReplyDifference] = DifferenceList()

    def compare(self, epoch: Epoch, plan: ReplayPlan, outcomes: Sequence[Outcome | None]) -> None:
        """Compare the replies of an epoch.

        Args:
            outcomes: Their outcomes; None if the recorded outcome is used.
        """
        for row, was, outcome in zip(plan.rows, plan.recorded, outcomes, strict=True):
            if outcome is None:
                continue
            if was is None:
                _note(self.inserted, epoch, row, None, outcome)
            elif outcome.reply != was.reply or outcome.error != was.error:
                _note(self.differing, epoch, row, was, outcome)
        for row in plan.left_out:
            _note(self.left_out, epoch, row, row, None)


def _note(
    differences: DifferenceList[ReplyDifference],
    epoch: Epoch,
    row: RequestRow,
    was: RequestRow | None,
    now: Outcome | None,
) -> None:
    if differences.next():
        recorded = [] if was is None else [reply_of(was.error, was.reply)]
        replayed = [] if now is None else [reply_of(now.error, now.reply)]
        call = call_text(row.body)
        differences.shown.append(ReplyDifference(epoch, row.request_id, call, recorded, replayed))


class StateDiff:
    """The entities whose replayed state differs from the recorded state, after every epoch.

    Memory grows with the differences only. An entity that becomes equal again is removed.

    Attributes:
        recorded: The recorded state of each entity that differs (None: it did not exist).
    """

    def __init__(self) -> None:
        self.recorded: dict[EntityKey, bytes | None] = {}

    def follow(
        self,
        before: Mapping[EntityKey, bytes],
        written: Mapping[EntityKey, bytes | None],
        changes: Mapping[EntityKey, bytes | None],
    ) -> None:
        """Add the changes of an epoch.

        Args:
            before: The replayed state before the epoch.
        """
        recorded = self.recorded
        if written == changes:
            for key in changes if recorded else ():
                recorded.pop(key, None)
            return
        for key in {**written, **changes}:
            now = before.get(key)
            was = recorded.get(key, now)
            now, was = written.get(key, now), changes.get(key, was)
            if now != was:
                recorded[key] = was
            else:
                recorded.pop(key, None)


@dataclass(slots=True)
class EntityDifferences:
    """The entities that differ after the last epoch: changed, or present on one side only."""

    changed: DifferenceList[EntityDifference] = field(default_factory=DifferenceList)
    created: DifferenceList[EntityDifference] = field(default_factory=DifferenceList)
    deleted: DifferenceList[EntityDifference] = field(default_factory=DifferenceList)

    @property
    def count(self) -> int:
        """The number of entities that differ."""
        return self.changed.count + self.created.count + self.deleted.count


def entity_differences(
    state_diff: StateDiff, state: Mapping[EntityKey, bytes], recorded_by: App, replayed_by: App
) -> EntityDifferences:
    """Return the entities that differ, in the order of keys, with their attributes.

    A recorded state may have been turned into a row of the class of the replay; its attributes have the names there.
    """
    differences = EntityDifferences()
    for key in sorted(state_diff.recorded):
        was, now = state_diff.recorded[key], state.get(key)
        if was is None:
            group = differences.created
        else:
            group = differences.deleted if now is None else differences.changed
        is_converted = was is not None and is_of(replayed_by, key, was)
        before = attributes_of(replayed_by if is_converted else recorded_by, key, was)
        after = attributes_of(replayed_by, key, now)
        if before == after and group is differences.changed:
            continue  # the classes store equal attributes in different rows
        if group.next():
            group.shown.append(EntityDifference(key, compare_attributes(key, before, after)))
    return differences


def is_of(app: App, key: EntityKey, row: bytes) -> bool:
    """Say whether a row has the shape that an application declares."""
    entity_type = app.stored.get(split_entity_key(key)[0])
    return entity_type is not None and row.startswith(entity_type.row_head)
