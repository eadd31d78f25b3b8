"""The warehouses, and their districts."""

from decimal import Decimal
from typing import NamedTuple

from penstock import Entity, key

DISTRICTS = 10


class DistrictId(NamedTuple):
    w_id: int
    d_id: int


class Warehouse(Entity):
    w_id: int = key()
    w_name: str
    w_street_1: str
    w_street_2: str
    w_city: str
    w_state: str
    w_zip: str
    w_tax: Decimal
    w_ytd: Decimal


class District(Entity):
    """A district of a warehouse.

    `d_next_delivery` is the number of the oldest order that is not delivered. The specification finds it by a scan
    of NEW-ORDER; handlers of Penstock cannot scan, so the district remembers it.
    """

    district_id: DistrictId = key()
    d_name: str
    d_street_1: str
    d_street_2: str
    d_city: str
    d_state: str
    d_zip: str
    d_tax: Decimal
    d_ytd: Decimal
    d_next_o_id: int
    d_next_delivery: int

    def take_order_number(self) -> int:
        """Return the number of the next order."""
        self.d_next_o_id += 1
        return self.d_next_o_id - 1

    def take_delivery(self) -> int | None:
        """Return the number of the oldest order that is not delivered; None if all orders are delivered."""
        if self.d_next_delivery == self.d_next_o_id:
            return None
        self.d_next_delivery += 1
        return self.d_next_delivery - 1
