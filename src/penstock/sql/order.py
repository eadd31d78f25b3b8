"""`Order`: a question of the present as a spare child reads it, and the work of that child."""

import time
from functools import partial
from typing import IO, Final

import msgspec

from penstock.process.config import ViewConfig
from penstock.sql.child_process import keep_to
from penstock.sql.query import Query, QueryLimits, limits_of, run
from penstock.sql.query_pool import Asked, QueryJob, bounds_of
from penstock.sql.result_format import ResultFormat, encode_result
from penstock.sql.view_store import ViewStore
from penstock.sql.warm_child import LENGTH_BYTES

_WARM_S: Final = 60.0
_FIRST: Final = Query("SELECT 1")


class Order(msgspec.Struct, frozen=True):
    """A question, its limits and the format of its answer."""

    question: Query
    deadline: float
    time_ms: int
    rows_max: int
    chosen: ResultFormat


_decode = msgspec.msgpack.Decoder(Order).decode


def order_of(question: Query, limits: QueryLimits, asked: Asked) -> bytes | None:
    """Return an order as bytes; None if a parameter would be another one when it is read."""
    order = Order(question, limits.deadline, limits.time_ms, limits.rows_max, asked.chosen)
    try:
        told = msgspec.msgpack.encode(order)
    except TypeError:
        return None
    return told if _decode(told) == order else None


def serve(store: ViewStore, settings: ViewConfig, orders: IO[bytes], pipe: IO[bytes]) -> None:
    """Touch all that a query needs, read one order and carry it out; in a child."""
    answer = run(store, _FIRST, limits_of(_FIRST, settings, time.monotonic() + _WARM_S))
    for one in ResultFormat:
        encode_result(answer, one)
    store.sealed().execute("ROLLBACK")
    length = orders.read(LENGTH_BYTES)
    if not length:
        return  # the parent ends this child, which is of an old epoch
    order = _decode(orders.read(int.from_bytes(length)))
    limits = QueryLimits(order.deadline, order.time_ms, order.rows_max, settings)
    keep_to(bounds_of(limits))
    job = QueryJob(partial(run, store, order.question, limits), Asked(order.chosen), limits)
    job.work(pipe)
