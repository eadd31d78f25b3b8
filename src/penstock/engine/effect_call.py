"""The call of an effect as data: its arguments, its id, its encoded result, and the record of its outcome.

The effect process and `Kit` share it. Neither it nor they change a row: the record does.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from penstock.base.encoder import Encoder
from penstock.base.ids import EntityKey, RequestId, fingerprint_of
from penstock.base.lowering import lower_of
from penstock.base.misfit import misfit_of
from penstock.base.schema import decode_reference, reason_of, refuse
from penstock.engine.streams.derived_ids import beginning_id, outcome_id
from penstock.errors import Erased, LimitExceeded, RequestError, Unencodable
from penstock.model.application import App
from penstock.model.sealed_value import REPLY, seal_value, subject_of
from penstock.model.signature import Signature
from penstock.model.waiting_effect import Kind, Settlement, WaitingEffect, effect_key

_ENCODER: Final = Encoder(refuse)
_WRONG: Final = (TypeError, ValueError, OverflowError, RecursionError, Unencodable)

ERROR_MAX: Final = 2_000
"""The most characters of an error that a record keeps."""


def effect_id_of(lineage: bytes, waiting: WaitingEffect) -> str:
    """Return the result of `effect_id()`: it depends on the lineage, the request and the arguments alone."""
    digest = blake2b(digest_size=16, key=lineage[:64])
    for part in (waiting.id.encode(), bytes(waiting.positional), bytes(waiting.named)):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def signature_of(app: App, waiting: WaitingEffect) -> Signature:
    """Return the effect that a row calls.

    Raises:
        RequestError: The application has it no more.
    """
    signature = app.effects.get(waiting.function)
    if signature is None:
        raise RequestError(
            f"the application has no effect {waiting.function} any more; deploy it again, and then retry this effect"
        )
    return signature


def arguments_of(app: App, waiting: WaitingEffect) -> tuple[Sequence[Any], dict[str, Any]]:
    """Return the arguments of the call, by position and by name.

    Raises:
        RequestError: The application lacks the effect, or the arguments do not fit its parameters any more.
        Erased: They concern a person who was erased.
    """
    signature = signature_of(app, waiting)
    request = app.opened(waiting.request)
    try:
        return signature.decode(request.positional, request.named)
    except RequestError as error:
        raise RequestError(
            f"the arguments do not fit the code in force: {error}; deploy code that takes them, and then retry this effect"
        ) from error


def encoded_result(signature: Signature, value: Any, bytes_max: int) -> bytes:
    """Return the encoded result of an effect.

    Raises:
        Unencodable: It cannot be stored, or does not fit the declared result.
        LimitExceeded: It takes too many bytes.
    """
    lower = lower_of(signature.returns)
    try:
        data = _ENCODER.encode(lower(value) if lower else value)
        if len(data) <= bytes_max:
            msgspec.msgpack.decode(data, type=signature.declared_result, dec_hook=decode_reference)
    except _WRONG as error:
        reason = misfit_of(reason_of(error)).at(f"the result of {signature.name}")
        raise Unencodable(f"{reason}") from error
    if len(data) > bytes_max:
        raise LimitExceeded(
            f"the result of {signature.name} takes {len(data)} bytes, more than reply_bytes = {bytes_max}"
        )
    return data


def settlement_of(
    waiting: WaitingEffect,
    told: Kind,
    *,
    value: bytes = b"\xc0",
    error: str = "",
    tries: int = 0,
    effect_id: str = "",
) -> Settlement:
    """Return the outcome of a row, or its beginning."""
    return Settlement(
        waiting.id,
        waiting.round,
        told,
        msgspec.Raw(value),
        error[:ERROR_MAX],
        tries,
        effect_id,
    )


def protected_value(app: App, waiting: WaitingEffect, value: bytes) -> bytes:
    """Return the encoded result as the log may have it: encrypted, if the arguments are.

    Raises:
        Erased: The person was erased meanwhile.
    """
    subject = subject_of(bytes(waiting.positional))
    if subject is None or app.keys is None:
        return value
    return seal_value(app.keys, subject, value, REPLY)


def hidden_error(
    app: App, waiting: WaitingEffect, error_kind: str, text: str
) -> tuple[str, bytes | None]:
    """Return the error of an effect as rows and files may have it, and the whole text, encrypted.

    Args:
        error_kind: The name of the class of the error, which no person has chosen.
    """
    if subject_of(bytes(waiting.positional)) is None or app.keys is None:
        return text, None
    public = f"{error_kind}: the text is encrypted, because the arguments concern a person"
    try:
        return public, protected_value(app, waiting, _ENCODER.encode(text[:ERROR_MAX]))
    except Erased:  # meanwhile
        return public, None


def record_id(settlement: Settlement) -> RequestId:
    """Return the id of the record of a beginning or an outcome."""
    of = beginning_id if settlement.kind == "begin" else outcome_id
    return of(settlement.effect, settlement.round)


def hint_of(waiting: WaitingEffect) -> bytes:
    """Return the access hint of such a record: its row, and the entity that gets the outcome."""
    touched = [effect_key(waiting.id)]
    if waiting.then is not None:
        touched.insert(0, EntityKey(f"{waiting.then.entity}/{waiting.then.key}"))
    return b"".join(fingerprint_of(key).to_bytes(8, "little") for key in touched)
