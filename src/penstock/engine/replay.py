"""Replay: an epoch's requests once more, and how what comes out differs from what was recorded.

Pure: who calls it reads the journal, supplies the state before an epoch, and holds handlers to their
limits. What is compared is bytes; values are decoded only for people, once something differs.

A transaction that was undone for exceeding a limit, or set aside, is not run again: time and memory
depend on the machine. It is taken as recorded, and counted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from penstock.base.ids import EntityKey, Epoch, Lsn, RequestId, entity_key, split_entity_key
from penstock.engine.execute import Executor, Limits, Outcome
from penstock.engine.failure import DECIDED
from penstock.errors import Diverged, RequestError
from penstock.model.application import App
from penstock.model.request import decode_failure, decode_request

REPLY: Final = "reply"
"""What a finding is about when it is not about an entity (whose keys hold a slash)."""

_TEXT_MAX: Final = 80
_encode: Final = msgspec.msgpack.Encoder().encode


class RequestRow(NamedTuple):
    """A request of an epoch, and what was recorded of it."""

    lsn: Lsn
    request_id: RequestId
    time_us: int
    body: bytes
    error: str | None
    reply: bytes


@dataclass(frozen=True, slots=True)
class RecordedEpoch:
    """An epoch as the journal has it.

    Attributes:
        time_us: When it was committed, microseconds since the Unix epoch.
        rows: Its requests, in order.
        changes: Every entity that it changed, with what it was afterwards (None: deleted).
    """

    epoch: Epoch
    time_us: int
    rows: Sequence[RequestRow]
    changes: dict[EntityKey, bytes | None]


class ValueDifference(NamedTuple):
    """One value that is not what was recorded.

    Attributes:
        place: `reply`, or the entity.
        attribute: Empty for a reply, and where the entity did not exist on one side.
    """

    place: str
    attribute: str
    recorded: Any
    replayed: Any


@dataclass(frozen=True, slots=True)
class ReplayDifference:
    """The first request of an epoch after which something is not what was recorded.

    Attributes:
        position: Of the request in its epoch, from 0.
        findings: What differs of its reply, and of the entities that it was the last to change.
        suspects: Positions of all requests that may be the cause: those that wrote what differs,
            and the first one whose reply differs.
    """

    position: int
    findings: tuple[ValueDifference, ...]
    suspects: tuple[int, ...]


class Replayer:
    """Runs the requests of epochs, one by one, over a state of its own.

    Attributes:
        state: The state before the epoch that runs.
        written: What the requests of this epoch have made of entities, so far.
        executor: What a guard needs to hold handlers to their limits.
    """

    def __init__(self, app: App, state: dict[EntityKey, bytes], limits: Limits) -> None:
        """Begin; `state` is the replayer's from now on."""
        self.app = app
        self.state = state
        self.written: dict[EntityKey, bytes | None] = {}
        written = self.written

        def read(key: EntityKey) -> bytes | None:
            return written[key] if key in written else state.get(key)

        self.read = read
        self.executor = Executor(app, read, limits)

    def run(self, row: RequestRow) -> Outcome:
        """Process one request; its writes are seen by those after it."""
        outcome = self.executor.run(row.request_id, row.body, row.time_us)
        if outcome.writes:
            self.written.update(outcome.writes)
        return outcome

    def run_all(self, rows: Iterable[RequestRow]) -> list[Outcome | None]:
        """Process requests in order; None stands for one that is taken as recorded."""
        execute, written = self.executor.run, self.written
        outcomes: list[Outcome | None] = []
        for row in rows:
            if row.error in DECIDED:
                outcomes.append(None)
                continue
            outcome = execute(row.request_id, row.body, row.time_us)
            if outcome.writes:
                written.update(outcome.writes)
            outcomes.append(outcome)
        return outcomes

    def take(self, changes: dict[EntityKey, bytes | None]) -> None:
        """Take over what an epoch made of entities, without running anything."""
        self.written.update(changes)

    def finish(self) -> None:
        """End the epoch: what it wrote is the state before the next one."""
        apply_changes(self.state, self.written)
        self.written.clear()


def apply_changes(state: dict[EntityKey, bytes], changes: dict[EntityKey, bytes | None]) -> None:
    """Apply an epoch's changes to a state."""
    for key, data in changes.items():
        if data is None:
            state.pop(key, None)
        else:
            state[key] = data


def first_difference(
    replayer: Replayer, recorded: RecordedEpoch, outcomes: Sequence[Outcome | None]
) -> ReplayDifference | None:
    """Compare an epoch that was run, and is not finished, with what was recorded of it."""
    keys = _differing_entities(replayer, recorded)
    wrong = first_differing_reply(recorded, outcomes)
    if wrong is None and not keys:
        return None
    last = {key: _last_at(outcomes, key) for key in keys}
    position = min([*last.values(), *([] if wrong is None else [wrong])])
    findings: list[ValueDifference] = []
    if position == wrong:
        findings.append(reply_difference(recorded.rows[position], outcomes[position]))
    mine = [key for key in keys if last[key] == position]
    for key in mine:
        before = recorded.changes.get(key, replayer.state.get(key))
        findings += compare(replayer.app, key, before, replayer.read(key))
    suspects = {position, *([] if wrong is None else [wrong])}
    for key in mine:
        suspects.update(at for at, one in enumerate(outcomes) if one and key in one.writes)
    return ReplayDifference(position, tuple(findings), tuple(sorted(suspects)))


def first_differing_reply(
    recorded: RecordedEpoch, outcomes: Sequence[Outcome | None]
) -> int | None:
    """Return the position of the first request whose reply is not what was recorded."""
    for position, (row, outcome) in enumerate(zip(recorded.rows, outcomes, strict=True)):
        if outcome is not None and (outcome.reply != row.reply or outcome.error != row.error):
            return position
    return None


def _differing_entities(replayer: Replayer, recorded: RecordedEpoch) -> list[EntityKey]:
    """Return what is another entity after the epoch; one that was changed back is none."""
    written, changes, state = replayer.written, recorded.changes, replayer.state
    if written == changes:
        return []
    return [
        key
        for key in sorted(written.keys() | changes.keys())
        if written.get(key, state.get(key)) != changes.get(key, state.get(key))
    ]


def _last_at(outcomes: Sequence[Outcome | None], key: EntityKey) -> int:
    """Return which request was the last to write an entity, else to read it, else the last."""
    for kind in ("writes", "reads"):
        for position in range(len(outcomes) - 1, -1, -1):
            outcome = outcomes[position]
            if outcome is not None and key in getattr(outcome, kind):
                return position
    return len(outcomes) - 1


def reply_difference(row: RequestRow, outcome: Outcome | None) -> ValueDifference:
    """Return how the reply of a request that was run differs."""
    assert outcome is not None, "what is taken as recorded does not differ"
    now = reply_of(outcome.error, outcome.reply)
    return ValueDifference(REPLY, "", reply_of(row.error, row.reply), now)


def compare(
    app: App, key: EntityKey, recorded: bytes | None, replayed: bytes | None
) -> list[ValueDifference]:
    """Return which attributes of an entity differ; one finding where it did not exist once."""
    before, after = attributes_of(app, key, recorded), attributes_of(app, key, replayed)
    return compare_attributes(key, before, after)


def compare_attributes(
    key: EntityKey, before: dict[str, Any] | None, after: dict[str, Any] | None
) -> list[ValueDifference]:
    """Return which attributes differ, as `compare` does, from attributes by name.

    As bytes do: 1 is neither 1.0 nor true, and what is no number equals itself.
    """
    if before is None or after is None:
        return [] if before == after else [ValueDifference(key, "", before, after)]
    names = [*before, *(name for name in after if name not in before)]
    return [
        ValueDifference(key, name, before.get(name), after.get(name))
        for name in names
        if _encode(before.get(name)) != _encode(after.get(name))
    ]


def attributes_of(app: App, key: EntityKey, data: bytes | None) -> dict[str, Any] | None:
    """Return stored attributes by name, as plain data.

    Raises:
        Diverged: They are of another shape than their class is declared in, or it is not known.
    """
    if data is None:
        return None
    name, text = split_entity_key(key)
    kind = app.entities.get(name)
    if kind is None:
        raise Diverged(f"there is no class of the stored entity {key}")
    return kind.plain(text, data)


def reply_of(error: str | None, data: bytes) -> Any:
    """Return a recorded reply for people: the value, or the failure's code, kind and message."""
    if error is None:
        return msgspec.msgpack.decode(data)
    failure = decode_failure(data)
    return {"error": failure.code, "kind": failure.kind, "message": failure.message}


def call_text(body: bytes) -> str:
    """Return a request as one would write it: `Item/i1.add(5)`."""
    try:
        request = decode_request(body)
        arguments = [_shown(one) for one in msgspec.msgpack.decode(request.positional)]
        named = msgspec.msgpack.decode(request.named)
    except (RequestError, msgspec.MsgspecError) as error:
        return f"what is no request ({error})"
    arguments += [f"{name}={_shown(one)}" for name, one in named.items()]
    target = f"{entity_key(request.entity, request.key or '-')}." if request.entity else ""
    return f"{target}{request.method}({', '.join(arguments)})"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"


def rejection_of(app: App, body: bytes) -> str:
    """Say why an application cannot take a request; empty where it can."""
    try:
        request = decode_request(body)
        app.signature(request.entity, request.method).decode(request.positional, request.named)
    except RequestError as error:
        return str(error)
    return ""


def handler_line(app: App, body: bytes) -> str:
    """Return `file:line` of what a request calls; empty where it calls nothing that exists."""
    try:
        request = decode_request(body)
        return app.signature(request.entity, request.method).where
    except RequestError:
        return ""
