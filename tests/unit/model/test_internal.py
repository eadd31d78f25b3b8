"""`@internal`: what no caller from outside reaches."""

import pytest

from penstock import (
    App,
    DefinitionError,
    Entity,
    LocalRuntime,
    entity,
    internal,
    key,
    readonly,
    route,
    transactional,
)
from penstock.dataflow.analysis.analyze import analyze_app
from penstock.dataflow.text import plan_text
from penstock.errors import RequestError
from penstock.model.declaration import RESERVED


class Invoice(Entity, internal=("create", "delete")):
    number: str = key()
    cents: int = 0
    is_paid: bool = False

    def pay(self) -> None:
        self.settle()

    @internal
    def settle(self) -> None:
        self.is_paid = True

    @internal
    @readonly
    def owed(self) -> int:
        return self.cents


class Ledger(Entity, internal=True):
    name: str = key()
    entries: int = 0

    def book(self) -> int:
        self.entries += 1
        return self.entries


@transactional
def bill(number: str, cents: int) -> int:
    Invoice.create(number, cents=cents)
    return Ledger.upsert("main").book()


@internal
@transactional
def close() -> None:
    """Do nothing; it is only named."""


APP = App("billing", Invoice, Ledger, bill, close)


def test_what_is_internal() -> None:
    """Marked methods and functions, named methods of every entity, and everything of a whole class.

    `update_or_create` could create an invoice, so it is internal with `create`.
    """
    reached = {
        (name, method)
        for name, each in APP.entities.items()
        for method in (*each.methods, *RESERVED)
        if not APP.is_internal(name, method)
    }
    assert reached == {("Invoice", "pay"), ("Invoice", "upsert"), ("Invoice", "exists")}
    assert APP.is_internal("", "close")
    assert not APP.is_internal("", "bill")
    assert not APP.is_internal("", "unknown")
    assert not APP.is_internal("Unknown", "pay")


def test_the_application_calls_it() -> None:
    """Handlers reach everything, and so does a runtime that is used directly."""
    runtime = LocalRuntime(APP)
    assert runtime.call(bill, "i1", 250) == 1
    runtime.call(Invoice("i1").pay)
    assert runtime.call(Invoice("i1").owed) == 250
    runtime.call(close)


def test_a_plan_shows_it() -> None:
    """The text of `penstock explain` marks it."""
    text = plan_text(analyze_app(APP))
    assert "  @internal settle() -> None" in text
    assert "  @internal @readonly owed() -> int" in text
    assert "  @internal book() -> int" in text
    assert "  @internal close() -> None" in text
    assert "  pay() -> None" in text


def test_a_class_is_served_without_it() -> None:
    """A path for a whole class leaves out its internal methods."""

    @route("/tills")
    class Till(Entity):
        name: str = key()

        def open(self) -> None: ...

        @internal
        def count(self) -> None: ...

    assert [each.method for each in App("tills", Till).routes] == ["open"]


def test_wrong_marks_are_refused() -> None:
    """A path to an internal handler, a name that no entity has, and a mark that nothing obeys."""

    @route("POST /pots/{name}")
    class Pot(Entity, internal=("create",)):
        name: str = key()

        @internal
        @route("POST /pots/{name}/wash")
        def wash(self) -> None: ...

        @internal
        def _hidden(self) -> None: ...

    @entity(internal="wash")
    class Pan:
        name: str = key()

    with pytest.raises(DefinitionError) as caught:
        App("kitchen", Pot, Pan)
    message = str(caught.value)
    assert "POST /pots/{name}: Pot.create is internal, so no path leads to it" in message
    assert "POST /pots/{name}/wash: Pot.wash is internal, so no path leads to it" in message
    assert "Pot._hidden is marked @internal and serves no request" in message
    assert (
        "Pan: internal='wash': it takes True, or names from create, delete, exists, "
        "update_or_create, upsert" in message
    )
    with pytest.raises(DefinitionError, match="@internal marks a method or a function"):
        internal(Pot)


def test_refusal_of_an_unknown_method_names_open_methods_alone() -> None:
    """A message to callers does not propose a handler that they cannot call."""

    class Kettle(Entity, internal=("delete",)):
        name: str = key()

        def boil(self) -> None: ...

        @internal
        def descale(self) -> None: ...

    with pytest.raises(RequestError) as caught:
        App("kitchen", Kettle).signature("Kettle", "fly")
    assert str(caught.value) == (
        "there is no method of Kettle 'fly'; there are boil, create, exists, "
        "update_or_create, upsert"
    )
