"""The shop as three applications equals the shop as one application, on random logs, epoch by epoch."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from examples.shop import app as shop
from examples.shop.payment import User
from examples.shop.stock import Item
from penstock.base.ids import Epoch, RequestId
from penstock.deployment.archives import Archives
from penstock.deployment.code_in_force import unpacked
from penstock.deployment.deploy_order import store_code
from penstock.deployment.loading import load_app, locate
from penstock.deployment.source import code_of
from penstock.journal.deployments import Deployments
from penstock.log.api import Entry
from penstock.model.control import Deploy, encode_control
from penstock.runtime.local.runtime import LocalRuntime
from penstock.state.digest import digest_of_mapping
from tests.differential.committed import answers_of, digest_of_stores, state_of
from tests.differential.inline import Inline
from tests.differential.simulation import Answer
from tests.market import MARKET, PLACES
from tests.modules import own_modules

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
    with own_modules(PLACES), tempfile.TemporaryDirectory() as folder:
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


def test_one_application_is_upgraded_while_the_others_run(tmp_path: Path) -> None:
    """Requests before the deployment run with the old stock, those behind it with the new one, through old orders."""
    data, market = tmp_path / "data", shutil.copytree(MARKET, tmp_path / "market")
    with own_modules(PLACES):
        code, archive = code_of(locate(str(market)))
        data.mkdir()
        Archives(data).put(archive)
        inline = Inline(data, 2, unpacked(data, code).spec, "market")
        Deployments(data / "journal").record(Epoch(0), 0, code, {})
        try:
            file = market / "stock" / "__init__.py"
            file.write_text(file.read_text().replace("self.add(-amount)", "self.add(-2 * amount)"))
            upgrade = encode_control(Deploy(store_code(data, str(market / "stock"))))
            item, order = (Item("t"),), ("Order", "o", "checkout", ())
            sent: list[Any] = [
                ("Item", "t", "create", (), {"price": 1, "stock": 9}),
                ("User", "u", "create", (), {"credit": 9}),
                *(("Order", name, "create", (), {"user_id": User("u")}) for name in "op"),
                *(("Order", name, "addItem", (*item, 2), {}) for name in "op"),
                (*order, {}),
                None,
                ("Order", "p", "checkout", (), {}),
            ]
            for index, request in enumerate(sent):
                body, hint = (upgrade, b"") if request is None else shop.request(*request)
                entry = Entry(RequestId(f"r{index}"), body, hint, 0, is_control=not request)
                inline.log.append([entry])
            inline.advance(inline.log.end())
            assert [answer.error for answer in answers_of(inline.journal)] == [None] * len(sent)
            item_type = shop.entities["Item"]
            row = state_of(inline.journal)[item_type.key_of(Item("t"))]
            assert item_type.decode("t", row)["stock"] == 9 - 2 - 4
        finally:
            inline.close()
