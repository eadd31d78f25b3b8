"""The row of an effect that waits, and the records that change it: its outcome, and orders of operators.

All of it is plain data, and `settled` is a pure function of both. So each run of a log gives the same rows, and an outcome
is accepted once: by the row that waits.
"""

from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from penstock.base.encoder import Encoder
from penstock.base.ids import EntityKey, RequestId, bounded, entity_key
from penstock.errors import RequestError
from penstock.model.request import THEN, Failure, Request, decode_request, encode_request

SETTLE: Final = "$effect"
"""The method of a record that changes the row of an effect; no function can have this name."""

EFFECT: Final = "$effect"
"""The name of the system rows of effects; the key is the id of the request that has sent the effect."""

_NIL: Final = msgspec.Raw(b"\xc0")
_NO_NAMES: Final = msgspec.Raw(b"\x80")
_ENCODER: Final = Encoder()


def effect_key(effect: str) -> EntityKey:
    """Return the key of the row of an effect, by the id of the request that has sent it."""
    return entity_key(EFFECT, bounded(effect))


class Then(NamedTuple):
    """The method that gets the outcome: the stored name of its class, the text of its key, its name."""

    entity: str
    key: str
    method: str


State: TypeAlias = Literal["waiting", "begun", "dead"]
"""`begun`: a `once=True` effect may have been called. `dead`: it has failed for good, and an operator may retry it."""

Kind: TypeAlias = Literal["begin", "done", "failed", "unknown", "retry", "discard"]
"""The word of a record: `begin` before a `once=True` call, three outcomes, and two orders."""


class WaitingEffect(msgspec.Struct, frozen=True, array_like=True):
    """The row of an effect.

    Attributes:
        id: The id of the request that sent it.
        function: The name of the function.
        positional, named: The encoded arguments; encrypted if the request concerns a person.
        time_us: When it began to wait, microseconds since the Unix epoch.
        state: Whether it waits, has begun, or is dead.
        round: 1, and one more for each retry of a dead letter; an outcome belongs to a round.
        nudges: How often an operator has asked for a try at once.
        tries: The calls of a dead letter.
        error: Why it is dead; of one that has begun, the process that has begun it.
        is_unknown: Whether a dead letter may have been done or not.
    """

    id: str
    function: str
    positional: msgspec.Raw
    named: msgspec.Raw
    time_us: int
    then: Then | None = None
    state: State = "waiting"
    round: int = 1
    nudges: int = 0
    tries: int = 0
    error: str = ""
    is_unknown: bool = False

    @property
    def request(self) -> Request:
        """The call of the function."""
        return Request("", None, self.function, self.positional, self.named)

    @property
    def group(self) -> str:
        """Whose effect it is: the entity that gets the outcome, or the request that has sent it."""
        return f"{self.then.entity}/{self.then.key}" if self.then else self.id.partition("~~")[0]


class Settlement(msgspec.Struct, frozen=True, array_like=True):
    """The content of a record about an effect.

    Attributes:
        effect: The id of the request that sent it.
        round: The round that it is about.
        value: The encoded result of the function, if it is done; encrypted as the arguments are. If it has failed, and the
            arguments concern a person: the encrypted text of the error.
        tries: The calls of the function.
        effect_id: The result of `effect_id()` in it; empty for an order.
    """

    effect: str
    round: int
    kind: Kind
    value: msgspec.Raw = _NIL
    error: str = ""
    tries: int = 0
    effect_id: str = ""

    def body(self) -> bytes:
        """Return the body of its record."""
        return encode_request(
            Request("", None, SETTLE, msgspec.Raw(_ENCODER.encode(self)), _NO_NAMES)
        )


_HEAD: Final = b"\x95\xa0\xc0" + _ENCODER.encode(SETTLE)

_decode_row: Final = msgspec.msgpack.Decoder(WaitingEffect).decode
_decode_settlement: Final = msgspec.msgpack.Decoder(Settlement).decode
_decode_named: Final = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_decode_then: Final = msgspec.msgpack.Decoder(Then).decode


def decode_waiting_effect(row: bytes) -> WaitingEffect:
    """Read the row of an effect."""
    return _decode_row(row)


def is_settlement(body: bytes) -> bool:
    """Say whether a body is that of a record about an effect."""
    return body.startswith(_HEAD)


def settlement_text(body: bytes) -> str:
    """Return a record about an effect as text: `the outcome of effect order-7~~1: done`."""
    try:
        settlement = decode_settlement(decode_request(body))
    except RequestError as error:
        return f"an invalid record about an effect ({error})"
    match settlement.kind:
        case "begin":
            return f"the beginning of effect {settlement.effect}"
        case "retry" | "discard":
            return f"the order to {settlement.kind} effect {settlement.effect}"
        case status:
            return f"the outcome of effect {settlement.effect}: {status}"


def decode_settlement(request: Request) -> Settlement:
    """Read the content of a record.

    Raises:
        RequestError: The request is another one.
    """
    try:
        return _decode_settlement(request.positional)
    except msgspec.MsgspecError as error:
        raise RequestError(f"the record says nothing about an effect: {error}") from error


def with_then(request: Request, then: Then) -> Request:
    """Return a request for an effect whose outcome a method gets."""
    named = {**_decode_named(request.named), THEN: msgspec.Raw(_ENCODER.encode(then))}
    return msgspec.structs.replace(request, named=msgspec.Raw(_ENCODER.encode(named)))


def without_then(request: Request) -> tuple[Request, Then | None]:
    """Return a request for an effect as the call of the function alone, and the method that gets the outcome."""
    named = _decode_named(request.named)
    then = named.pop(THEN, None)
    if then is None:
        return request, None
    # An empty map has one form only, which `Signature.decode` knows.
    raw = msgspec.Raw(_ENCODER.encode(named)) if named else _NO_NAMES
    return msgspec.structs.replace(request, named=raw), _decode_then(then)


def waiting_row(request_id: RequestId, request: Request, time_us: int) -> bytes:
    """Return the row of an effect that begins to wait."""
    call, then = without_then(request)
    waiting = WaitingEffect(request_id, call.method, call.positional, call.named, time_us, then)
    return _ENCODER.encode(waiting)


class Settled(NamedTuple):
    """The effect of a record on a row.

    Attributes:
        status: `done`, `failed`, `unknown` or `begin`; the order; or `ignored`, if the row does not wait for it.
        row: The row afterwards; None if it is removed. If the record is ignored, the row stays.
        then: The method that gets the outcome; None if none does.
        has_ended: Whether the effect has its outcome now.
    """

    status: str
    row: bytes | None
    then: Then | None = None
    has_ended: bool = False

    @property
    def is_done(self) -> bool:
        """Whether the function has returned."""
        return self.status == "done"


IGNORED: Final = Settled("ignored", None)


def settled(row: bytes | None, settlement: Settlement) -> Settled:
    """Return the change that a record makes to the row of its effect."""
    if row is None or (waiting := _decode_row(row)).round != settlement.round:
        return IGNORED
    if settlement.kind in ("retry", "discard"):
        return _ordered(waiting, settlement.kind)
    if waiting.state == "dead" or (settlement.kind == "begin" and waiting.state == "begun"):
        return IGNORED
    if settlement.kind == "begin":
        return Settled("begin", _changed(waiting, state="begun", error=settlement.error))
    row = None
    if settlement.kind != "done":
        facts = {"tries": settlement.tries, "error": settlement.error}
        row = _changed(waiting, state="dead", is_unknown=settlement.kind == "unknown", **facts)
    return Settled(settlement.kind, row, waiting.then, has_ended=True)


def _ordered(waiting: WaitingEffect, order: Kind) -> Settled:
    """Return the change that the order of an operator makes to a row."""
    if order == "discard":
        has_ended = waiting.state != "dead"
        return Settled("discard", None, waiting.then if has_ended else None, has_ended)
    if waiting.state == "dead":
        again = {"round": waiting.round + 1, "state": "waiting", "error": "", "tries": 0}
        return Settled("retry", _changed(waiting, is_unknown=False, **again))
    if waiting.state == "waiting":
        return Settled("retry", _changed(waiting, nudges=waiting.nudges + 1))
    return IGNORED


def _changed(waiting: WaitingEffect, **facts: Any) -> bytes:
    return _ENCODER.encode(msgspec.structs.replace(waiting, **facts))


class SettleReply(msgspec.Struct, frozen=True, array_like=True):
    """The reply of a record about an effect, for its asker and for people.

    Attributes:
        status: See `Settled`.
        value: The result of the function, if it is done.
        error: Why it is not done.
    """

    status: str
    value: msgspec.Raw = _NIL
    error: str = ""


_decode_reply: Final = msgspec.msgpack.Decoder(SettleReply).decode

DISCARDED: Final = "it was discarded by an operator"


def reply_of(settlement: Settlement, done: Settled) -> bytes:
    """Return the encoded reply of a record."""
    is_done = done.status == "done"
    error = "" if is_done else DISCARDED if done.status == "discard" else settlement.error
    value = settlement.value if is_done else _NIL
    return _ENCODER.encode(SettleReply(done.status, value, error))


def answer_in(reply: bytes) -> tuple[bytes | None, Failure | None] | None:
    """Return the result, or the failure, that the asker of an effect gets; None if the record is an order or a beginning."""
    given = _decode_reply(reply)
    match given.status:
        case "done":
            return bytes(given.value), None
        case "failed" | "unknown" | "discard":
            name = "OutcomeUnknown" if given.status == "unknown" else "EffectFailed"
            return None, Failure("ask-failed", name, given.error)
        case _:
            return None


def outcome_value(settlement: Settlement, done: Settled, value: bytes) -> bytes:
    """Return the encoded `Outcome` for a method.

    Args:
        value: The readable result of the function.
    """
    is_done = done.status == "done"
    discarded = done.status == "discard"
    return _ENCODER.encode(
        {
            "status": "failed" if discarded else done.status,
            "value": msgspec.Raw(value) if is_done else None,
            "error": DISCARDED if discarded else settlement.error,
            "tries": settlement.tries,
            "effect": settlement.effect_id,
        }
    )


def then_request(then: Then, outcome: bytes) -> Request:
    """Return the request that hands an encoded `Outcome` to a method."""
    return Request(then.entity, then.key, then.method, msgspec.Raw(b"\x91" + outcome), _NO_NAMES)
