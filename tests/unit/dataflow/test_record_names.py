"""The plan tells records of the same name apart, so that a reader of a value finds the fields of its own class."""

from collections.abc import Callable
from dataclasses import dataclass

from penstock import App, Entity, key
from penstock.dataflow.analysis.analyze import analyze_app


class Depot(Entity):
    name: str = key()


class Billing:
    """The records of a first module."""

    @dataclass
    class Address:
        payer: Depot
        lines: list[str] | None = None


class Delivery:
    """The records of a second module; one has the name of an entity class."""

    @dataclass
    class Address:
        door: int

    @dataclass
    class Depot:
        city: str


class Parcel(Entity):
    number: int = key()
    payer: Billing.Address
    target: dict[str, Delivery.Address]
    origin: Delivery.Depot
    depot: Depot

    def move(self, target: Delivery.Address) -> Billing.Address:
        self._put(target, str)
        return self.payer

    def _put(self, target: Delivery.Address, name: Callable[[int], str]) -> None:
        self.target[name(self.number)] = target


def test_records_of_one_name_have_full_names() -> None:
    """Attributes, parameters and results name the class that is meant; clear names stay short."""
    plan = analyze_app(App("parcels", Depot, Parcel))
    here = __name__
    parcel = plan.operators[1]
    assert [(each.name, each.type) for each in parcel.attributes] == [
        ("payer", f"{here}.Billing.Address"),
        ("target", f"dict[str, {here}.Delivery.Address]"),
        ("origin", f"{here}.Delivery.Depot"),
        ("depot", "Depot"),
    ]
    (move,) = (method for method in parcel.methods if method.name == "move")
    assert move.parameters[0].type == f"{here}.Delivery.Address"
    assert move.returns == f"{here}.Billing.Address"
    (put,) = (method for method in parcel.methods if method.name == "_put")
    assert put.parameters[1].type == "Callable[[int], str]"
    assert {record.name: [each.type for each in record.fields] for record in plan.records} == {
        f"{here}.Billing.Address": ["Depot", "list[str] | None"],
        f"{here}.Delivery.Address": ["int"],
        f"{here}.Delivery.Depot": ["str"],
    }
