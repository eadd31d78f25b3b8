"""First checkouts: the rows of new orders say which of them belong together, before any of them has run."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.shop import app
from examples.shop.payment import User
from examples.shop.stock import Item
from penstock import LocalRuntime
from penstock.base.ids import RequestId
from penstock.log.api import Entry
from penstock.native.choice import core
from tests.differential.committed import answers_of
from tests.differential.inline import Inline
from tests.memory_log import MemoryLog

ORDERS = 400
SMALL = 100
"""Epochs of fewer requests run in one task."""


def entries(calls: Sequence[tuple[Any, ...]], first: int) -> list[Entry]:
    return [
        Entry(RequestId(str(number)), *app.request(*call), 1_000)
        for number, call in enumerate(calls, first)
    ]


def test_first_checkouts_of_orders_are_spread_without_conflicts() -> None:
    """Orders whose users and items overlap in pairs run once; in Python, which knows no mentions, many run again."""
    loading: list[tuple[Any, ...]] = [
        ("", None, "init_items", (ORDERS, 100, 1)),
        ("", None, "init_users", (ORDERS // 2, 100)),
    ]
    orders: list[tuple[Any, ...]] = []
    for number in range(ORDERS):
        orders.append(("Order", str(number), "create", (), {"user_id": User(str(number // 2))}))
        orders.append(("Order", str(number), "addItem", (Item(str(number)), 1)))
    checkouts = [("Order", str(number), "checkout", ()) for number in range(ORDERS)]
    shuffled = checkouts[::2] + checkouts[1::2]  # the orders of a user are far apart
    log = MemoryLog()
    with tempfile.TemporaryDirectory() as folder:
        inline = Inline(Path(folder), 2, "examples.shop:app", app.name, small_epoch=SMALL)
        count = 0
        for calls in (
            loading,
            *(orders[i : i + SMALL] for i in range(0, len(orders), SMALL)),
            shuffled,
        ):
            these = entries(calls, count)
            log.append(these)
            inline.log.append(these)
            count += len(these)
            inline.advance(int(inline.log.end()))
        report = inline.reports[-1][0]
        serial = LocalRuntime(app).replay(log.read(log.start(), log.end()))
        assert [(answer.error, answer.data) for answer in answers_of(inline.journal)] == [
            (reply.error, reply.data) for reply in serial
        ]
        inline.close()
    assert (report.records, report.tasks) == (ORDERS, 2)
    assert report.reran > ORDERS // 4 if core is None else report.reran == 0
