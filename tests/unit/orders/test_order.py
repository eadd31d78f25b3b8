"""Control records have ids that no caller can take before them."""

import pytest

from penstock.base.ids import EntityKey, Lsn
from penstock.errors import RequestError
from penstock.gateway.request_ids import check_chosen
from penstock.orders.erasure_order import request_erasure
from penstock.orders.partitions import append_move
from tests.memory_log import MemoryLog


def test_no_caller_can_choose_the_id_of_an_order() -> None:
    """An id that a caller may choose is never that of an erasure or a move, which it would block."""
    log = MemoryLog()
    request_erasure(log, EntityKey("User/ada"), 0)
    request_erasure(log, EntityKey("User/ada"), 0, failures=1)
    append_move(log, 2)
    ids = [record.request_id for record in log.read(Lsn(0), log.end())]
    assert len(set(ids)) == 3
    for request_id in ids:
        with pytest.raises(RequestError, match="request id"):
            check_chosen(request_id, 1_024)


def test_an_order_is_repeated_without_effect() -> None:
    """The same erasure again has the same position."""
    log = MemoryLog()
    assert len({request_erasure(log, EntityKey("User/ada"), 0) for _ in range(2)}) == 1
