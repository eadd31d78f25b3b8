"""The shop as three applications equals the shop as one application, on random logs, epoch by epoch."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from examples.shop import app as shop
from examples.shop.payment import User
from examples.shop.stock import Item
from penstock.base.ids import RequestId
from penstock.log.api import Entry
from penstock.process.loading import load_app
from penstock.runtime.local.runtime import LocalRuntime
from penstock.state.digest import digest_of_mapping
from tests.differential.committed import answers_of, digest_of_stores, state_of
from tests.differential.inline import Inline
from tests.differential.simulation import Answer
from tests.market import MARKET, own_modules

keys = st.sampled_from("ab")
amounts = st.integers(0, 3)
calls = st.one_of(
    st.tuples(st.just("Item"), keys, st.sampled_from(("add", "subtract")), st.tuples(amounts)),
    st.tuples(st.just("User"), keys, st.sampled_from(("add_funds", "pay")), st.tuples(amounts)),
    st.tuples(st.just("Order"), keys, st.just("addItem"), st.tuples(keys.map(Item), amounts)),
    st.tuples(st.just("Order"), keys, st.just("checkout"), st.just(())),
    st.tuples(st.just(""), st.none(), st.just("init_orders"), st.just((2, 2, 2, 1))),
)


def made(names: str) -> list[tuple[str, str | None, str, tuple[object, ...]]]:
    """Return calls that create an item, a user and an order with each name."""
    requests: list[tuple[str, str | None, str, tuple[object, ...]]] = [
        ("", None, "init_items", (2, 2, 1)),
        ("", None, "init_users", (2, 5)),
    ]
    for name in names:
        requests += [("Item", name, "create", ()), ("User", name, "create", ())]
        requests.append(("Order", name, "create", ()))
    return requests


NAMED: dict[str, dict[str, object]] = {
    "Item": {"price": 1, "stock": 4},
    "User": {"credit": 4},
    "Order": {"user_id": User("a")},
}


@settings(max_examples=10, deadline=None)
@given(st.lists(calls, min_size=4, max_size=30), st.integers(1, 3), st.integers(0, 8))
def test_three_applications_equal_one(
    requests: list[tuple[str, str | None, str, tuple[object, ...]]], partitions: int, cut: int
) -> None:
    """Bodies, replies, rows and digests are the same bytes, also with conflicts between tasks."""
    with own_modules(), tempfile.TemporaryDirectory() as folder:
        market = load_app(str(MARKET))
        inline = Inline(Path(folder), partitions, str(MARKET), "market")
        serial = LocalRuntime(shop, secret=inline.journal.secret)
        try:
            sent = [*made("ab"), *requests]
            for index, (entity, key, method, positional) in enumerate(sent):
                named = NAMED[entity] if method == "create" else {}
                encoded = shop.request(entity, key, method, positional, named)
                if method not in ("create", "addItem"):  # these have references of the shop
                    assert market.request(entity, key, method, positional, named) == encoded
                inline.log.append([Entry(RequestId(f"r{index}"), *encoded, index)])
                if index in (len(made("ab")), len(made("ab")) + cut):
                    inline.advance(inline.log.end())
            inline.advance(end := inline.log.end())
            replies = serial.replay(inline.log.read(inline.log.start(), end))
            expected = [Answer(reply.request_id, reply.error, reply.data) for reply in replies]
            assert answers_of(inline.journal) == expected
            assert state_of(inline.journal) == serial.state
            digest = digest_of_mapping(serial.state)
            assert digest_of_stores(inline.config, inline.journal) == digest
        finally:
            inline.close()
