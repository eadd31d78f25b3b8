"""Several applications run as one: interfaces are bound to what is behind their paths, or refused with their places."""

from dataclasses import dataclass
from typing import Any

import pytest

from penstock import (
    App,
    DefinitionError,
    Emit,
    Entity,
    LocalRuntime,
    PerTask,
    connect,
    emit,
    flow,
    generator,
    key,
    portal,
    registry,
    send,
    sequencer,
    stream,
    transactional,
)
from penstock.dataflow.analysis.analyze import analyze_app
from penstock.model.application_set import combined
from penstock.testing import Kit


class Item(Entity):
    item_id: str = key()
    price: int = 3
    stock: int = 0

    def add(self, amount: int, note: str = "") -> int:
        self.stock += amount
        return self.stock


STOCK = App("stock", Item)


def using_stock(attributes: dict[str, Any], path: str = "/stock/Item", name: str = "Item") -> App:
    """Return an application with an interface whose class has these attributes besides its key."""
    annotations = {"item_id": str, **attributes.pop("__annotations__", {})}
    body = {"item_id": key(), "__annotations__": annotations, "__module__": __name__, **attributes}
    return App("shop", registry.entity(path)(type(name, (), body)))


def complaints_of(*apps: App) -> str:
    """Return the text of the error with which the applications are refused."""
    with pytest.raises(DefinitionError) as caught:
        combined(apps)
    return str(caught.value)


def test_a_transaction_spans_entities_of_several_applications() -> None:
    """A reference, an argument, a record's field and a sent request lead to the entity of the other application."""

    @registry.entity("/stock/Item")
    class Item(Entity):
        item_id: str = key()
        price: int

        def add(self, amount: int) -> int:
            raise NotImplementedError

    @dataclass
    class Line:
        item: Item
        amount: int

    class Basket(Entity):
        basket_id: str = key()
        lines: list[Line] = []
        best: Item | None = None

        def put(self, item: Item, amount: int) -> int:
            assert isinstance(item, Item)
            self.lines.append(Line(item, amount))
            self.best = item
            return item.price * amount

        def take(self) -> int:
            for line in self.lines:
                line.item.add(-line.amount)
            send(Item.add, self.lines[0].item, 100)
            return len(self.lines)

    kit = Kit(App("shop", Item, Basket), STOCK)
    kit.call.Item.create("tea", stock=5)
    kit.call.Basket.create("b")
    assert kit.call.Basket("b").put(Item("tea"), 2) == 6
    assert kit.call(Basket.take, Basket("b")) == 1
    kit.settle()
    assert kit.entities("Item")["tea"]["stock"] == 103
    assert kit.entities("Basket")["b"]["best"] == "tea"
    assert [app.name for app in kit.runtime.app.parts] == ["shop", "stock"]


def test_an_application_without_interfaces_stays_as_it_is() -> None:
    """A single application is not built again."""
    assert combined([STOCK]) is STOCK


def test_an_interface_may_leave_out_what_is_not_used() -> None:
    """An interface of the key alone fits, and so does a call without an optional argument."""
    assert combined([using_stock({}), STOCK]).entities["Item"].cls is Item


def test_a_missing_application_is_named() -> None:
    """The message has the place of the interface, the path, and the applications that exist."""
    text = complaints_of(using_stock({}, path="/stok/Item"), STOCK)
    assert "test_application_set.py:" in text
    assert "application shop uses /stok/Item, and there is no application 'stok'" in text
    assert "did you mean stock?" in text


def test_an_unknown_path_names_near_misses() -> None:
    """The suggestion is a path that can be copied."""
    text = complaints_of(using_stock({}, path="/stock/Itme", name="Itme"), STOCK)
    assert "no entity class '/stock/Itme'; did you mean /stock/Item?" in text


def _as_text(self: Any, amount: str) -> int:
    raise NotImplementedError


def _without_default(self: Any, amount: int, more: int) -> int:
    raise NotImplementedError


def _other_result(self: Any, amount: int) -> str:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("attributes", "complaint"),
    [
        ({"__annotations__": {"price": str}}, "price: str, and the class has price: int"),
        ({"__annotations__": {"colour": str}}, "colour: the class has no such attribute"),
        ({"buy": _as_text}, "buy(): the class has no such method"),
        ({"add": _as_text}, "add(amount: str) -> int, and the class has add(amount: int, note"),
        ({"add": _without_default}, "add(amount: int, more: int) -> int, and the class has add("),
        ({"add": _other_result}, "add(amount: int) -> str, and the class has add("),
        ({"__annotations__": {"item_id": int}}, "its key is item_id: int, and the class has"),
    ],
)
def test_an_interface_with_other_types_is_refused(
    attributes: dict[str, Any], complaint: str
) -> None:
    """The message shows both declarations, and the places of both."""
    text = complaints_of(using_stock({**attributes}), STOCK)
    assert complaint in text
    assert text.count("test_application_set.py:") == 2


def test_a_name_belongs_to_one_application() -> None:
    """Two classes with one name are refused with both places, before anything is stored."""

    class Item(Entity):
        item_id: str = key()

    text = complaints_of(STOCK, App("other", Item))
    assert "the name Item is taken by" in text
    assert text.count("test_application_set.py:") == 2


def test_two_applications_cannot_have_one_name() -> None:
    """The name of an application is the first part of its paths."""
    assert "two applications are named stock" in complaints_of(STOCK, App("stock"))


def test_a_wrong_path_is_refused_where_it_is_written() -> None:
    """The message shows the form of a path."""
    for path in ("stock/Item", "/stock/streams/Item", "/Item", "/stock/It em", 5):
        with pytest.raises(DefinitionError, match="its form is /application/Class"):
            registry.entity(path)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="its form is /application/streams/name"):
        registry.stream("/stock/paid", int)
    with pytest.raises(DefinitionError, match="decorates a class that is named Item, not User"):
        registry.entity("/stock/Item")(type("User", (), {}))


def test_an_interface_outside_of_its_application_is_refused() -> None:
    """An application names its interfaces as it names its classes."""

    @registry.entity("/stock/Item")
    class Item(Entity):
        item_id: str = key()

    @transactional
    def look(item: Item) -> str:
        return item.item_id

    with pytest.raises(DefinitionError, match="the entity Item is not part of the application"):
        App("shop", look)


@dataclass
class Sale:
    item: str
    amount: int


def streaming_apps(sale_type: type = Sale, reply: type = int) -> tuple[App, App]:
    """Return an application that sells, and one that follows its stream and asks its portal."""
    sales = stream("sales", Sale)
    total = portal("total", str, int, key=str)

    class Selling:
        sold: PerTask[int] = 0
        of_item: int = 0

        def on_event(self, sale: Sale) -> None:
            self.of_item += sale.amount

        @total.reply
        def on_total(self, item: str) -> int:
            return self.of_item

    @transactional
    def sell(item: str, amount: int) -> None:
        emit(sales, Sale(item, amount))

    sold = flow("selling", sales).key(lambda sale: sale.item).task(Selling).sink("sold")
    followed: Any = registry.stream("/selling/streams/sales", sale_type)
    asked: Any = registry.portal("/selling/portals/total", str, reply)

    class Reporting:
        seen: int = 0

        async def on_event(self, sale: sale_type, out: Emit[reply]) -> None:  # type: ignore[valid-type]
            self.seen += isinstance(sale, sale_type)
            out(await asked.ask(sale.item))  # type: ignore[attr-defined]

    @transactional
    def correct(item: str) -> None:
        emit(followed, sale_type(item, -1))

    reports = flow("reporting", followed).task(Reporting).sink("reports")
    return App("selling", sell, sold), App("report", reports, asked, followed, correct)


@dataclass
class Sold:
    item: str
    amount: int


Sold.__name__ = "Sale"  # a record of the same form in the module of the other application


def test_streams_and_portals_of_another_application() -> None:
    """A workflow follows a stream, asks a portal and gets values of its own types; a handler emits on the stream."""
    kit = Kit(*streaming_apps(Sold))
    kit.call.sell("tea", 4)
    kit.call.correct("tea")
    kit.settle()
    assert kit.runtime.failures == []
    assert [atom for atom in kit.atoms("reports") if atom] == [[4], [3]]
    assert kit.task("reporting.Reporting") == {"seen": 2}
    selling, report = analyze_app(kit.runtime.app).applications
    assert selling.operators == ("sell", "streams/sales", "workflows/selling", "portals/total")
    assert report.operators == ("correct", "workflows/reporting")


def test_a_stream_or_a_portal_with_other_types_is_refused() -> None:
    """The message shows both types."""
    text = complaints_of(*streaming_apps(sale_type=int, reply=str))
    assert "uses /selling/streams/sales with events of type int, and the stream has Sale" in text
    assert "uses /selling/portals/total with replies of type str, and the portal has int" in text


def test_a_runtime_refuses_an_incomplete_application() -> None:
    """An application that uses others does not run without them."""
    with pytest.raises(DefinitionError, match="there is no application 'stock'"):
        LocalRuntime(using_stock({}))


def test_a_generator_feeds_a_stream_of_another_application() -> None:
    """Its atoms are on the stream of the other application, whose workflow takes them."""
    theirs = stream("measured", int)
    doubled = flow("double", theirs).map(twice).sink("doubled")
    ours = registry.stream("/plant/streams/measured", int)
    source = generator("ticks", ours, [1, 2, 3], atom_size=2)
    kit = Kit(App("plant", doubled), App("clock", source))
    assert kit.generate() == 2
    assert kit.atoms(doubled) == [[2, 4], [6]]


def test_a_generator_of_a_workflow_of_another_application_is_refused() -> None:
    """The check waits until both applications are there."""
    doubled = flow("double", stream("measured", int)).map(twice).sink("doubled")
    source = generator("ticks", registry.stream("/plant/streams/doubled", int), [1], atom_size=1)
    with pytest.raises(DefinitionError, match="takes no appends"):
        Kit(App("plant", doubled), App("clock", source))


def twice(number: int) -> int:
    return 2 * number


def test_a_cycle_goes_through_two_applications() -> None:
    """The second application connects its stream to the sequencer of the first one."""
    numbers = stream("numbers", int)
    loop = sequencer("loop", int, numbers)
    lower = flow("lower", loop).map(minus_one).sink("lowered")
    filtered = flow("positive", registry.stream("/down/streams/lowered", int)).filter(bool)
    rest = filtered.sink("rest", int)
    back = connect(rest, registry.sequencer("/down/streams/loop", int))
    kit = Kit(App("down", lower), App("up", rest, back))
    kit.append(numbers, [3])
    assert kit.atoms(lower) == [[2], [1], [0]]


def minus_one(number: int) -> int:
    return number - 1


def test_a_path_of_another_stream_is_no_sequencer() -> None:
    """The message names both declarations."""
    numbers = stream("numbers", int)
    back = connect(numbers, registry.sequencer("/down/streams/lowered", int))
    lower = flow("lower", sequencer("loop", int)).map(minus_one).sink("lowered")
    with pytest.raises(DefinitionError, match="with a sequencer, and there is another stream"):
        Kit(App("down", lower), App("up", numbers, back))
