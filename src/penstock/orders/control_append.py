"""The append of a control record, whichever command orders it. Its id is one that no caller can choose."""

import time

from penstock.base.ids import Lsn, RequestId
from penstock.engine.streams.derived_ids import MARK
from penstock.log.api import Entry, Log
from penstock.model.control import Control, encode_control


def append_control(log: Log, order: str, number: str, control: Control) -> Lsn:
    """Append a control record durably, and return its position; one whose id the log has is not appended again.

    Args:
        log: The log.
        order: The first word of its id.
        number: The rest of its id; the same order again has the same one, if a repetition is to have no effect.
        control: The control.

    Raises:
        LogUnavailable: The log cannot be written.
    """
    request_id = control_id(order, number)
    now_us = time.time_ns() // 1_000
    return log.append([Entry(request_id, encode_control(control), b"", now_us, is_control=True)])[0]


def control_id(order: str, number: str) -> RequestId:
    """Return the id of a control record: `erase~~5c21`. A caller who could choose it would block the order."""
    return RequestId(f"{order}{MARK}{number}")
