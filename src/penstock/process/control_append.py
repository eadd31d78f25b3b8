"""The append of a control record, whichever command orders it."""

import time

from penstock.base.ids import Lsn, RequestId
from penstock.log.api import Entry, Log
from penstock.model.control import Control, encode_control


def append_control(log: Log, request_id: RequestId, control: Control) -> Lsn:
    """Append a control record durably, and return its position; a request id that the log has is not appended again.

    Args:
        log: The log.
        request_id: The request id of the record.
        control: The control.

    Raises:
        LogUnavailable: The log cannot be written.
    """
    now_us = time.time_ns() // 1_000
    return log.append([Entry(request_id, encode_control(control), b"", now_us, is_control=True)])[0]
