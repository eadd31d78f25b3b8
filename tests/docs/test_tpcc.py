"""TPC-C: the five transactions as the specification has them, and the twelve conditions in every epoch."""

import re
import time
from collections import Counter
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from examples.tpcc import app
from examples.tpcc.consistency import CONDITIONS, VIOLATIONS
from examples.tpcc.customer import Customer, CustomerId, LastName, NameId
from examples.tpcc.nurand import FULL, Scale, constants, last_name
from examples.tpcc.order import NewOrder, Order, OrderId
from examples.tpcc.population import (
    Work,
    load_customers,
    load_items,
    load_orders,
    load_stock,
    load_warehouse,
    population,
)
from examples.tpcc.terminal import WEIGHTS, Kind, Terminal, Transaction
from examples.tpcc.transactions import (
    WantedLine,
    delivery,
    new_order,
    order_status,
    order_status_by_name,
    payment,
    payment_by_name,
    stock_level,
)
from examples.tpcc.warehouse import District, DistrictId, Warehouse
from penstock import Aborted, App, transactional
from penstock.base.ids import EntityKey, Epoch, Lsn, RequestId
from penstock.log.api import Entry
from penstock.process.config import Config, ViewConfig
from penstock.sql_view.as_of_query import AsOfQueries, as_of_queries
from penstock.sql_view.query import Query
from penstock.testing import Kit
from tests.checkout import TOP
from tests.serial_driver import SerialDriver

SMALL = Scale(items=60, customers=30)


@pytest.fixture(scope="module")
def populated() -> dict[EntityKey, bytes]:
    """The state of a company of two warehouses."""
    kit = Kit(app)
    for number, work in enumerate(population(2, SMALL)):
        kit.call.with_id(f"load-{number}")(work.function, *work.arguments)
    return dict(kit.runtime.state)


@pytest.fixture
def kit(populated: dict[EntityKey, bytes]) -> Kit:
    """A company of two warehouses."""
    kit = Kit(app)
    kit.runtime.state.update(populated)
    return kit


def attributes(kit: Kit, entity: str, key: object) -> dict[str, Any]:
    """Return the attributes of an entity that exists."""
    found = kit.entity(entity, key)
    assert found is not None
    return found


def customer(c_id: int = 1, d_id: int = 1, w_id: int = 1) -> Customer:
    return Customer(CustomerId(w_id, d_id, c_id))


def district(d_id: int = 1, w_id: int = 1) -> District:
    return District(DistrictId(w_id, d_id))


def test_population_has_the_numbers_of_the_scale(kit: Kit) -> None:
    """Every class has as many entities as the specification says, for the chosen scale."""
    counts = Counter(key.partition("/")[0] for key in kit.runtime.state)
    assert counts == {
        "Warehouse": 2,
        "District": 20,
        "Customer": 20 * 30,
        "LastName": 20 * 10,
        "History": 20 * 30,
        "Item": 60,
        "Stock": 2 * 60,
        "Order": 20 * 30,
        "NewOrder": 20 * 9,
        "NewestOrder": 20 * 30,
    }
    assert (FULL.items, FULL.customers, FULL.last_names, FULL.delivered) == (
        100_000,
        3_000,
        1_000,
        2_100,
    )


def test_new_order_takes_stock_and_is_the_newest_order(kit: Kit) -> None:
    """An order has its lines, its number and its total, and a remote line counts as remote."""
    before = attributes(kit, "Stock", (2, 7))
    wanted = [WantedLine(3, 1, 2), WantedLine(7, 2, 5)]
    sold = kit.call(new_order, customer(4), wanted)
    price = [attributes(kit, "Item", number)["i_price"] for number in (3, 7)]
    amount = 2 * price[0] + 5 * price[1]
    taxed = (
        1 + attributes(kit, "Warehouse", 1)["w_tax"] + attributes(kit, "District", (1, 1))["d_tax"]
    )
    discount = attributes(kit, "Customer", (1, 1, 4))["c_discount"]
    assert sold.total == (amount * (1 - discount) * taxed).quantize(Decimal("0.01"))
    assert sold.o_id == 31
    after = attributes(kit, "Stock", (2, 7))
    left = before["s_quantity"] - 5
    assert after["s_quantity"] == sold.lines[1].s_quantity == (left if left >= 10 else left + 91)
    assert (after["s_ytd"], after["s_order_cnt"], after["s_remote_cnt"]) == (5, 1, 1)
    status = kit.call(order_status, customer(4))
    assert (status.o_id, status.o_carrier_id) == (31, None)
    assert [line.ol_i_id for line in status.lines] == [3, 7]
    assert status.lines[0].ol_dist_info == attributes(kit, "Stock", (1, 3))["s_dist"][0]


def test_order_with_an_unused_item_leaves_no_trace(kit: Kit) -> None:
    """The last line of a rolled back order is unused; stock and order number are as before."""
    before = kit.digest()
    with pytest.raises(Aborted, match="Item number is not valid") as refused:
        kit.call(new_order, customer(), [WantedLine(3, 1, 2), WantedLine(SMALL.items + 1, 1, 1)])
    assert refused.value.code == "unused-item"
    assert kit.digest() == before


def test_payment_reaches_customer_district_and_warehouse(kit: Kit) -> None:
    """A payment at another warehouse changes the customer there, and the sums here."""
    amount = Decimal("12.34")
    kit.call(payment, district(2, 1), customer(3, 5, 2), amount)
    assert attributes(kit, "Warehouse", 1)["w_ytd"] == 3_000 + amount
    assert attributes(kit, "District", (1, 2))["d_ytd"] == 300 + amount
    paid = attributes(kit, "Customer", (2, 5, 3))
    assert (paid["c_balance"], paid["c_ytd_payment"]) == (-10 - amount, 10 + amount)
    assert paid["c_payment_cnt"] == 2
    assert (paid["c_credit"] == "BC") == paid["c_data"].startswith("3 5 2 2 1 12.34|")
    history = [one for one in kit.entities("History").values() if one["h_amount"] == amount]
    assert [(one["h_c_id"], one["h_district_id"]) for one in history] == [((2, 5, 3), (1, 2))]


def test_payment_by_name_finds_the_customer_in_the_middle(kit: Kit) -> None:
    """Of the customers with a last name, ordered by first name, the one in the middle pays."""
    name = NameId(1, 1, last_name(4))
    index = attributes(kit, "LastName", name)["customers"]
    firsts = [first for first, _ in index]
    assert firsts == sorted(firsts)
    expected = index[(len(index) + 1) // 2 - 1][0]
    assert kit.call(payment_by_name, district(), LastName(name), Decimal(5)).c_first == expected


def test_delivery_takes_the_oldest_order_of_each_district(kit: Kit) -> None:
    """Ten orders are delivered, their customers owe the amounts; without orders a district is skipped."""
    order = attributes(kit, "Order", (1, 1, 22))
    amount = sum(line.ol_amount for line in order["lines"])
    assert kit.call(delivery, Warehouse(1), 7) == [22] * 10
    assert attributes(kit, "Order", (1, 1, 22))["o_carrier_id"] == 7
    owes = attributes(kit, "Customer", (1, 1, order["o_c_id"]))
    assert (owes["c_balance"], owes["c_delivery_cnt"]) == (amount - 10, 1)
    for _ in range(8):
        kit.call(delivery, Warehouse(1), 7)
    assert kit.call(delivery, Warehouse(1), 7) == [None] * 10
    assert {key[0] for key in kit.entities("NewOrder")} == {2}


def test_stock_level_counts_items_of_the_newest_orders(kit: Kit) -> None:
    """Each item of the last twenty orders counts once if its stock is low."""
    items = {
        line.ol_i_id
        for (w_id, d_id, o_id), order in kit.entities("Order").items()
        if (w_id, d_id) == (1, 1) and o_id > 10
        for line in order["lines"]
    }
    low = [item for item in items if attributes(kit, "Stock", (1, item))["s_quantity"] < 55]
    assert kit.call(stock_level, district(), 55) == len(low)
    assert 0 < len(low) < len(items)


def test_terminal_draws_the_mix_of_the_specification() -> None:
    """The shares, remote lines and rollbacks are those of the specification, and a seed repeats them."""
    drawn = list(islice(Terminal(3, 5), 10_000))
    assert drawn[:50] == list(islice(Terminal(3, 5), 50))
    assert drawn[:50] != list(islice(Terminal(4, 5), 50))
    shares = Counter(one.kind for one in drawn)
    for kind, percent in WEIGHTS.items():
        assert 100 * shares[kind] / len(drawn) == pytest.approx(percent, abs=1.5)
    orders = [one for one in drawn if one.kind == "new-order"]
    assert sum(one.rolls_back for one in orders) / len(orders) == pytest.approx(0.01, abs=0.006)
    lines = [line for one in orders for line in one.work.arguments[1]]
    remote = sum(line.ol_supply_w_id != 1 for line in lines) / len(lines)
    assert remote == pytest.approx(0.01, abs=0.003)
    by_name = [one for one in drawn if one.work.function is payment_by_name]
    assert len(by_name) / shares["payment"] == pytest.approx(0.6, abs=0.03)


@pytest.mark.parametrize("seed", range(20))
def test_constants_of_last_names_have_the_distance_of_the_specification(seed: int) -> None:
    """Clause 2.1.6.1: 65 to 119, without 96 and 112."""
    drawn = constants(seed)
    distance = drawn.last_name - drawn.last_name_load
    assert 65 <= distance <= 119
    assert distance not in (96, 112)


def transactions(count: int) -> list[Transaction]:
    """Return the first transactions of ten terminals."""
    terminals = [iter(Terminal(number, 2, SMALL)) for number in range(10)]
    return [next(terminals[number % 10]) for number in range(count)]


class Company:
    """An application over a real journal; `append` returns the last epoch."""

    def __init__(self, data: Path, spec: str) -> None:
        self.driver = SerialDriver(spec, Config(data))
        self.driver.start()
        self._count = 0

    def append(self, works: list[Work]) -> Epoch:
        """Process calls, in epochs of their own."""
        entries = []
        for number, work in enumerate(works, self._count):
            body, hint = self.driver.app.request("", None, work.function.__name__, work.arguments)
            id_ = RequestId(f"r{number}")
            entries.append(Entry(id_, body, hint, time.time_ns() // 1_000))
        self._count += len(works)
        end = Lsn(self.driver.log.append(entries)[-1] + 1)
        assert self.driver.wait_until(end, 120_000)
        return self.newest()

    def newest(self) -> Epoch:
        return max(commit.epoch for commit in self.driver.journal.commits(Epoch(-1)))

    def queries(self) -> AsOfQueries:
        return as_of_queries(
            self.driver.config.data, self.driver.app, self.driver.journal, ViewConfig()
        )


def violated(queries: AsOfQueries, epoch: Epoch) -> dict[int, int]:
    """Return how many places violate each condition after an epoch, without conditions that hold."""
    query = Query(f"{VIOLATIONS} AS OF EPOCH {epoch}")
    statement = query.as_of_statement()
    assert statement is not None
    rows = queries.ask(statement, query, time.monotonic() + 120).table.to_pylist()
    assert sorted(row["condition"] for row in rows) == [*range(1, 13)]
    return {row["condition"]: row["violations"] for row in rows if row["violations"]}


@transactional
def spoil_sums() -> None:
    Warehouse(1).w_ytd += 1


@transactional
def spoil_orders() -> None:
    oldest = District(DistrictId(1, 2)).d_next_delivery
    Order(OrderId(1, 2, oldest)).o_ol_cnt += 1
    NewOrder(OrderId(1, 2, oldest + 1)).delete()


@transactional
def spoil_rest() -> None:
    District(DistrictId(1, 3)).d_next_o_id += 1
    Order(OrderId(1, 4, 3)).lines[0].ol_delivery_d = None
    Customer(CustomerId(1, 5, 6)).c_balance += 1
    District(DistrictId(1, 6)).d_ytd += 2


SPOILING = (spoil_sums, spoil_orders, spoil_rest)
HANDLERS = (
    *(load_items, load_stock, load_warehouse, load_customers, load_orders),
    *(new_order, payment, payment_by_name, delivery, stock_level),
    *(order_status, order_status_by_name),
)
spoiled = App("tpcc", *(kind.cls for kind in app.entities.values()), *HANDLERS, *SPOILING)


def test_conditions_hold_in_each_epoch_until_there_is_damage(tmp_path: Path) -> None:
    """The conditions hold at first, between and after; each finds its damage; older epochs stay as they were."""
    company = Company(tmp_path, "tests.docs.test_tpcc:spoiled")
    epochs = [company.append(list(population(2, SMALL)))]
    drawn = [one.work for one in transactions(400)]
    epochs += [company.append(drawn[:250]), company.append(drawn[250:])]
    epochs += [company.append([Work(function, ())]) for function in SPOILING]
    queries = company.queries()
    found = [violated(queries, epoch) for epoch in epochs]
    company.driver.stop()
    assert [set(one) for one in found] == [
        set(),
        set(),
        set(),
        {1, 8},
        {1, 3, 4, 5, 6, 8, 11},
        set(range(1, 13)),
    ]
    assert found[-1][1] == found[-1][2] == 1, "a violation is a place: one warehouse, one district"


def test_conditions_have_the_numbers_of_the_specification() -> None:
    """There are twelve conditions, in order."""
    assert [one.number for one in CONDITIONS] == list(range(1, 13))


def test_program_of_the_readme_runs() -> None:
    """The README's program runs as it stands."""
    text = (TOP / "examples" / "tpcc" / "README.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(program, "README.md", "exec"), names)
    assert len(names["kit"].entities("District")) == 10


def test_every_kind_runs(kit: Kit) -> None:
    """A mixed run has all five transactions, and only orders with an unused item fail."""
    outcomes: dict[Kind, int] = Counter()
    for one in transactions(300):
        if one.rolls_back:
            with pytest.raises(Aborted, match="Item number is not valid"):
                kit.call(one.work.function, *one.work.arguments)
        else:
            kit.call(one.work.function, *one.work.arguments)
            outcomes[one.kind] += 1
    assert outcomes.keys() == WEIGHTS.keys()
