"""The five transactions of TPC-C, each a function, with the inputs and outputs of the specification."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from penstock import Aborted, NoSuchEntity, now, readonly, transactional

from .customer import Customer, History, LastName
from .order import NewestOrder, NewOrder, Order, OrderId, OrderLine
from .stock import Item, Stock, StockId
from .warehouse import DISTRICTS, District, DistrictId, Warehouse

CENT = Decimal("0.01")
NEWEST_ORDERS = 20


class UnusedItem(Aborted):
    """The order has an item that does not exist: about one order in a hundred, by intent."""

    code = "unused-item"


@dataclass
class WantedLine:
    """An item that a customer orders, and the warehouse that supplies it."""

    ol_i_id: int
    ol_supply_w_id: int
    ol_quantity: int


@dataclass
class SoldLine:
    """A line of an order on the terminal's screen."""

    i_name: str
    i_price: Decimal
    s_quantity: int
    brand: bool
    ol_amount: Decimal


@dataclass
class Sold:
    """An order on the terminal's screen."""

    o_id: int
    o_entry_d: datetime
    c_last: str
    c_credit: str
    c_discount: Decimal
    w_tax: Decimal
    d_tax: Decimal
    total: Decimal
    lines: list[SoldLine]


@transactional
def new_order(customer: Customer, wanted: list[WantedLine]) -> Sold:
    """Enter an order of a customer. An unused item undoes the complete order."""
    w_id, d_id, c_id = customer.customer_id
    warehouse = Warehouse(w_id)
    district = District(DistrictId(w_id, d_id))
    order_id = OrderId(w_id, d_id, district.take_order_number())
    sold: list[SoldLine] = []
    lines: list[OrderLine] = []
    for line in wanted:
        item = Item(line.ol_i_id)
        try:
            amount = line.ol_quantity * item.i_price
        except NoSuchEntity:
            raise UnusedItem("Item number is not valid") from None
        stock = Stock(StockId(line.ol_supply_w_id, line.ol_i_id))
        stock.take(line.ol_quantity, remote=line.ol_supply_w_id != w_id)
        is_brand = "ORIGINAL" in item.i_data and "ORIGINAL" in stock.s_data
        sold.append(SoldLine(item.i_name, item.i_price, stock.s_quantity, is_brand, amount))
        lines.append(
            OrderLine(
                ol_i_id=line.ol_i_id,
                ol_supply_w_id=line.ol_supply_w_id,
                ol_quantity=line.ol_quantity,
                ol_amount=amount,
                ol_dist_info=stock.s_dist[d_id - 1],
            )
        )
    order = Order.create(
        order_id,
        o_c_id=c_id,
        o_entry_d=now(),
        o_ol_cnt=len(lines),
        o_all_local=all(line.ol_supply_w_id == w_id for line in wanted),
        lines=lines,
    )
    NewOrder.create(order_id)
    NewestOrder.upsert(customer.customer_id, order=order)
    taxed = 1 + warehouse.w_tax + district.d_tax
    return Sold(
        o_id=order_id.o_id,
        o_entry_d=order.o_entry_d,
        c_last=customer.c_last,
        c_credit=customer.c_credit,
        c_discount=customer.c_discount,
        w_tax=warehouse.w_tax,
        d_tax=district.d_tax,
        total=(order.amount() * (1 - customer.c_discount) * taxed).quantize(CENT),
        lines=sold,
    )


@dataclass
class Paid:
    """A payment on the terminal's screen."""

    customer: Customer
    c_first: str
    c_last: str
    c_credit: str
    c_discount: Decimal
    c_balance: Decimal
    c_data: str
    h_date: datetime


@transactional
def payment(district: District, customer: Customer, h_amount: Decimal) -> Paid:
    """Take a payment at a district, which need not be the customer's own."""
    district_id = district.district_id
    warehouse = Warehouse(district_id.w_id)
    warehouse.w_ytd += h_amount
    district.d_ytd += h_amount
    customer.pay(district_id, h_amount)
    History.create(
        h_c_id=customer.customer_id,
        h_district_id=district_id,
        h_date=now(),
        h_amount=h_amount,
        h_data=f"{warehouse.w_name}    {district.d_name}",
    )
    has_bad_credit = customer.c_credit == "BC"
    return Paid(
        customer=customer,
        c_first=customer.c_first,
        c_last=customer.c_last,
        c_credit=customer.c_credit,
        c_discount=customer.c_discount,
        c_balance=customer.c_balance,
        c_data=customer.c_data[:200] if has_bad_credit else "",
        h_date=now(),
    )


@transactional
def payment_by_name(district: District, name: LastName, h_amount: Decimal) -> Paid:
    """Take a payment of the customer in the middle of those with a last name."""
    return payment(district, name.middle(), h_amount)


@dataclass
class Status:
    """A customer's newest order on the terminal's screen."""

    c_first: str
    c_middle: str
    c_last: str
    c_balance: Decimal
    o_id: int
    o_entry_d: datetime
    o_carrier_id: int | None
    lines: list[OrderLine]


@transactional
@readonly
def order_status(customer: Customer) -> Status:
    """Show the newest order of a customer."""
    order = NewestOrder(customer.customer_id).order
    return Status(
        c_first=customer.c_first,
        c_middle=customer.c_middle,
        c_last=customer.c_last,
        c_balance=customer.c_balance,
        o_id=order.order_id.o_id,
        o_entry_d=order.o_entry_d,
        o_carrier_id=order.o_carrier_id,
        lines=order.lines,
    )


@transactional
@readonly
def order_status_by_name(name: LastName) -> Status:
    """Show the newest order of the customer in the middle of those with a last name."""
    return order_status(name.middle())


@transactional
def delivery(warehouse: Warehouse, o_carrier_id: int) -> list[int | None]:
    """Deliver the oldest order of each district; return their numbers, None for a district without one."""
    return [
        _deliver(District(DistrictId(warehouse.w_id, d_id)), o_carrier_id)
        for d_id in range(1, DISTRICTS + 1)
    ]


def _deliver(district: District, o_carrier_id: int) -> int | None:
    o_id = district.take_delivery()
    if o_id is None:
        return None
    order_id = OrderId(*district.district_id, o_id)
    NewOrder(order_id).delete()
    order = Order(order_id)
    order.deliver(o_carrier_id, now())
    Customer(order.customer_id).receive(order.amount())
    return o_id


@transactional
@readonly
def stock_level(district: District, threshold: int) -> int:
    """Count the items of the newest twenty orders of a district whose stock is below a threshold."""
    w_id, d_id = district.district_id
    end = district.d_next_o_id
    items = {
        line.ol_i_id
        for o_id in range(max(1, end - NEWEST_ORDERS), end)
        for line in Order(OrderId(w_id, d_id, o_id)).lines
    }
    return sum(Stock(StockId(w_id, i_id)).s_quantity < threshold for i_id in sorted(items))
