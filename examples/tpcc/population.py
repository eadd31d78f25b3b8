"""The population of the database (clause 4.3.3 of the specification).

`population` gives the calls that create everything. Each call is one transaction and creates some hundred entities.
A `Scale` below `FULL` has fewer items, customers and orders than the specification asks for.
"""

from collections.abc import Callable, Iterator
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

from penstock import now, random, transactional

from .customer import BAD_CREDIT, GOOD_CREDIT, Customer, CustomerId, History, LastName, NameId
from .nurand import FULL, LAST_NAME_A, Scale, constants, data, last_name, number_text, nurand, text
from .order import NewestOrder, NewOrder, Order, OrderId, OrderLine
from .stock import Item, Stock, StockId
from .warehouse import DISTRICTS, District, DistrictId, Warehouse

PAID = Decimal("10.00")
ITEMS_AT_ONCE = 500
CUSTOMERS_AT_ONCE = 250
ORDERS_AT_ONCE = 100


class Work(NamedTuple):
    """A call that is not made yet: a function of the application and its arguments."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def population(warehouses: int, scale: Scale = FULL, seed: int = 1) -> Iterator[Work]:
    """Yield the calls that create the database.

    Args:
        warehouses: The number of warehouses.
        scale: The numbers of items and customers.
        seed: The seed of last names and of the customers of orders. Other values follow from the ids of requests.
    """
    draw = Random(seed)
    c_load = constants(seed).last_name_load
    for first in range(1, scale.items + 1, ITEMS_AT_ONCE):
        count = min(ITEMS_AT_ONCE, scale.items + 1 - first)
        yield Work(load_items, (first, count))
        for w_id in range(1, warehouses + 1):
            yield Work(load_stock, (w_id, first, count))
    for w_id in range(1, warehouses + 1):
        yield Work(load_warehouse, (w_id, scale.customers))
        for d_id in range(1, DISTRICTS + 1):
            numbers = [*range(scale.last_names)]
            while len(numbers) < scale.customers:
                numbers.append(nurand(draw, LAST_NAME_A, c_load, scale.last_names - 1, 0))
            for first, names in _batches(numbers, CUSTOMERS_AT_ONCE):
                yield Work(load_customers, (w_id, d_id, first, names))
            buyers = draw.sample(range(1, scale.customers + 1), scale.customers)
            for first, some in _batches(buyers, ORDERS_AT_ONCE):
                yield Work(load_orders, (w_id, d_id, first, some, scale))


def _batches(numbers: list[int], size: int) -> Iterator[tuple[int, list[int]]]:
    for start in range(0, len(numbers), size):
        yield start + 1, numbers[start : start + size]


@transactional
def load_items(first: int, count: int) -> None:
    """Create items with the numbers from `first` on."""
    draw = random()
    for i_id in range(first, first + count):
        Item.create(
            i_id,
            i_im_id=draw.randint(1, 10_000),
            i_name=text(draw, 14, 24),
            i_price=Decimal(draw.randint(100, 10_000)) / 100,
            i_data=data(draw),
        )


@transactional
def load_stock(w_id: int, first: int, count: int) -> None:
    """Create the stock of items in a warehouse."""
    draw = random()
    for i_id in range(first, first + count):
        Stock.create(
            StockId(w_id, i_id),
            s_quantity=draw.randint(10, 100),
            s_dist=[text(draw, 24, 24) for _ in range(DISTRICTS)],
            s_data=data(draw),
        )


@transactional
def load_warehouse(w_id: int, customers: int) -> None:
    """Create a warehouse and its districts, which have so many customers each."""
    draw = random()
    street_1, street_2, city, state, zip_code = _address(draw)
    Warehouse.create(
        w_id,
        w_name=text(draw, 6, 10),
        w_street_1=street_1,
        w_street_2=street_2,
        w_city=city,
        w_state=state,
        w_zip=zip_code,
        w_tax=Decimal(draw.randint(0, 2_000)) / 10_000,
        w_ytd=PAID * customers * DISTRICTS,
    )
    for d_id in range(1, DISTRICTS + 1):
        street_1, street_2, city, state, zip_code = _address(draw)
        District.create(
            DistrictId(w_id, d_id),
            d_name=text(draw, 6, 10),
            d_street_1=street_1,
            d_street_2=street_2,
            d_city=city,
            d_state=state,
            d_zip=zip_code,
            d_tax=Decimal(draw.randint(0, 2_000)) / 10_000,
            d_ytd=PAID * customers,
            d_next_o_id=customers + 1,
            d_next_delivery=customers * 7 // 10 + 1,
        )


@transactional
def load_customers(w_id: int, d_id: int, first: int, names: list[int]) -> None:
    """Create customers with the numbers from `first` on, and a payment of each.

    Args:
        w_id: The number of the warehouse.
        d_id: The number of the district.
        first: The number of the first customer.
        names: The number of the last name of each customer.
    """
    draw = random()
    for c_id, name in enumerate(names, first):
        street_1, street_2, city, state, zip_code = _address(draw)
        c_first = text(draw, 8, 16)
        customer = Customer.create(
            CustomerId(w_id, d_id, c_id),
            c_first=c_first,
            c_middle="OE",
            c_last=last_name(name),
            c_street_1=street_1,
            c_street_2=street_2,
            c_city=city,
            c_state=state,
            c_zip=zip_code,
            c_phone=number_text(draw, 16),
            c_since=now(),
            c_credit=GOOD_CREDIT if draw.randrange(10) else BAD_CREDIT,
            c_credit_lim=Decimal("50000.00"),
            c_discount=Decimal(draw.randint(0, 5_000)) / 10_000,
            c_balance=-PAID,
            c_ytd_payment=PAID,
            c_data=text(draw, 300, 500),
        )
        name_id = NameId(w_id, d_id, last_name(name))
        index = LastName(name_id) if LastName.exists(name_id) else LastName.create(name_id)
        index.add(c_first, customer)
        History.create(
            h_c_id=customer.customer_id,
            h_district_id=DistrictId(w_id, d_id),
            h_date=now(),
            h_amount=PAID,
            h_data=text(draw, 12, 24),
        )


@transactional
def load_orders(w_id: int, d_id: int, first: int, buyers: list[int], scale: Scale) -> None:
    """Create orders with the numbers from `first` on. The last three of ten orders are not delivered.

    Args:
        w_id: The number of the warehouse.
        d_id: The number of the district.
        first: The number of the first order.
        buyers: The number of the customer of each order.
        scale: The numbers of items and customers.
    """
    draw = random()
    for o_id, c_id in enumerate(buyers, first):
        is_delivered = o_id <= scale.delivered
        lines = [
            OrderLine(
                ol_i_id=draw.randint(1, scale.items),
                ol_supply_w_id=w_id,
                ol_quantity=5,
                ol_amount=Decimal(0) if is_delivered else Decimal(draw.randint(1, 999_999)) / 100,
                ol_dist_info=text(draw, 24, 24),
                ol_delivery_d=now() if is_delivered else None,
            )
            for _ in range(draw.randint(5, 15))
        ]
        order_id = OrderId(w_id, d_id, o_id)
        order = Order.create(
            order_id,
            o_c_id=c_id,
            o_entry_d=now(),
            o_ol_cnt=len(lines),
            o_all_local=True,
            lines=lines,
            o_carrier_id=draw.randint(1, 10) if is_delivered else None,
        )
        NewestOrder.upsert(CustomerId(w_id, d_id, c_id), order=order)
        if not is_delivered:
            NewOrder.create(order_id)


def _address(draw: Random) -> tuple[str, str, str, str, str]:
    """Return two lines of street, a city, a state and a zip code."""
    street_1, street_2, city = (text(draw, 10, 20) for _ in range(3))
    return street_1, street_2, city, text(draw, 2, 2).upper(), f"{number_text(draw, 4)}11111"
