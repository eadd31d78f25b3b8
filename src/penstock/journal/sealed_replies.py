"""Replies to requests that concern a subject are encrypted in the journal, and readable for its readers.

A request with encrypted arguments names its subject (`model.sealed_value`), and its reply gets the same key.
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.subject_keys import SubjectKeys
from penstock.errors import Erased
from penstock.model.personal import ERASED
from penstock.model.request import Failure, encode_failure
from penstock.model.sealed_value import (
    FIRST_BYTES,
    REPLY,
    open_value,
    seal_value,
    subject_of_request,
)

_REPLY: Final = "reply"
_ERASED_REPLY: Final = b"\xa8" + ERASED.encode()
_FIRST_BYTES: Final = pa.array(FIRST_BYTES, pa.binary())


def seal_replies(keys: SubjectKeys, rows: pa.Table) -> pa.Table:
    """Return rows of requests with the replies encrypted whose requests concern a subject."""
    subjects = [subject_of_request(body) for body in rows["request"].to_pylist()]
    if not any(subjects):
        return rows
    sealed = [
        data if subject is None else seal_value(keys, subject, data, REPLY)
        for subject, data in zip(subjects, rows[_REPLY].to_pylist(), strict=True)
    ]
    return _with_replies(rows, sealed)


def open_replies(keys: SubjectKeys, rows: pa.Table) -> pa.Table:
    """Return rows of requests with readable replies; the reply to an erased subject is `<erased>`.

    Raises:
        Corrupt: A reply was changed, or is encrypted with other keys.
    """
    if _REPLY not in rows.column_names:
        return rows
    firsts = pc.binary_slice(rows[_REPLY], 0, 1)
    if not pc.any(pc.is_in(firsts, value_set=_FIRST_BYTES)).as_py():
        return rows
    errors = rows["error"].to_pylist() if "error" in rows.column_names else [None] * len(rows)
    replies = zip(rows[_REPLY].to_pylist(), errors, strict=True)
    return _with_replies(rows, [_opened(keys, data, error) for data, error in replies])


def _opened(keys: SubjectKeys, data: bytes | None, error: str | None) -> bytes | None:
    if data is None:
        return None
    try:
        return open_value(keys, data, REPLY)
    except Erased:
        if error is None:
            return _ERASED_REPLY
        return encode_failure(Failure(error, Erased.__name__, ERASED))


def _with_replies(rows: pa.Table, replies: list[Any]) -> pa.Table:
    place = rows.schema.get_field_index(_REPLY)
    return rows.set_column(place, rows.schema.field(place), pa.array(replies, pa.binary()))
