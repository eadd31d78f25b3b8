"""Calls that are written with methods: `call(Item.add, Item("i1"), 5)`."""

import asyncio
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from penstock import (
    Aborted,
    App,
    AsyncClient,
    Client,
    Entity,
    NoSuchEntity,
    OutsideTransaction,
    RequestError,
    key,
)
from penstock.model.call import Call, Preparing
from penstock.testing import Kit
from tests.gateway_thread import RunningGateway
from tests.unit.client.all_types_app import Coat, Fabric, Hook, app, hang_up
from tests.unit.model.test_styles import Club, Member, enlist, talk

prepare = Preparing(app, lambda call: call)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with RunningGateway(
        "tests.unit.client.all_types_app:app", tmp_path_factory.mktemp("wardrobe")
    ) as running:
        yield running


def test_method_is_called_on_its_first_argument() -> None:
    """A method's reference comes first, as when Python calls it through the class."""
    assert prepare(Coat.wear, Coat(1), times=4) == prepare.Coat(1).wear(times=4)
    assert prepare(Coat.twin_worn, Coat(1)) == prepare.Coat(1).twin_worn()
    assert prepare(Coat.delete, Coat(1)) == prepare.Coat(1).delete()
    assert prepare(hang_up, "h", [Coat(1)]) == prepare.hang_up("h", [Coat(1)])


def test_method_of_a_reference_is_called() -> None:
    """`coat.wear` has all that the call needs."""
    assert prepare(Coat(1).wear, times=4) == prepare(Coat.wear, Coat(1), times=4)
    assert prepare(Coat(1).twin_worn) == prepare.Coat(1).twin_worn()
    assert prepare(Coat(1).delete) == prepare.Coat(1).delete()
    kit = Kit(app)
    coat = kit.call(Coat.create, 1)
    assert kit.call(coat.wear, 5) == 5
    assert kit.call.with_id("once")(coat.wear, times=2) == kit.call.with_id("once")(
        coat.wear, times=2
    )


def test_method_of_a_reference_does_not_run_outside_of_a_transaction() -> None:
    """Its call is a mistake there, as the use of an attribute is."""
    coat = Coat(1)
    with pytest.raises(OutsideTransaction):
        coat.wear(1)
    with pytest.raises(OutsideTransaction):
        prepare(coat.no_such_method)  # type: ignore[attr-defined]
    with pytest.raises(OutsideTransaction):
        assert coat.worn


def test_method_whose_decorator_gives_it_another_name_is_called() -> None:
    """The name in the class counts."""

    def renaming(function: Any) -> Any:
        def wrapper(self: Any) -> Any:
            return function(self)

        return wrapper

    class Renamed(Entity):
        name: str = key()

        @renaming
        def size(self) -> int:
            return len(self.name)

    kit = Kit(App("renamed", Renamed))
    renamed = kit.call(Renamed.create, "abc")
    assert kit.call(Renamed.size, renamed) == kit.call(renamed.size) == 3


def test_creation_is_called_with_its_key() -> None:
    """`create`, `upsert` and `exists` take a key, or a reference in its place where that is allowed."""
    assert prepare(Coat.create, 1, worn=2) == prepare.Coat.create(1, worn=2)
    assert prepare(Coat.upsert, 1, worn=2) == Call("Coat", 1, "upsert", (), {"worn": 2})
    assert prepare(Coat.exists, Coat(1)) == prepare(Coat.exists, 1) == prepare.Coat.exists(1)
    assert prepare(Hook.create) == prepare.Hook.create()


def test_request_id_is_given_beforehand() -> None:
    """`with_id` names the request, in both forms of a call."""
    assert prepare.with_id("r")(Coat.wear, Coat(1), 4) == prepare.Coat(1).wear(4, request_id="r")
    assert prepare.with_id("r").Coat(1).wear(4) == prepare.Coat(1).wear(4, request_id="r")


def test_method_without_its_reference_is_refused() -> None:
    """A key instead of a reference, another class's entity, or no argument is a type error."""
    method: Any = Coat.wear
    for arguments in [(1, 4), (Hook("h"), 4), ()]:
        with pytest.raises(RequestError, match=r"Coat\.wear needs a reference"):
            prepare(method, *arguments)
    with pytest.raises(RequestError, match="no function 'test_method"):
        Kit(app).call(test_method_without_its_reference_is_refused)


def test_initializer_takes_its_arguments() -> None:
    """A class with an `__init__` is created with the arguments of that."""
    kit = Kit(talk)
    kit.call(Club.create, "c")
    assert kit.call(Member.create, "ann", Club("c"), points=20).__reduce__()[1] == ("ann",)
    assert len(kit.call(enlist, 2)) == 2


def test_call_over_http_is_the_same(gateway: RunningGateway) -> None:
    """With and without the application, over HTTP and in process, such a call has one outcome."""
    with Client(gateway.url, app) as known, Client(gateway.url) as plain:
        for number, call in enumerate([Kit(app).call, known.call, plain.call]):
            coat = Coat(number)
            call(Coat.create, number)
            assert call(Coat.wear, coat, 5) == 5
            assert call(coat.wear, 0) == 5
            call(Coat.upsert, number, worn=1)
            assert call.with_id(f"once-{number}")(Coat.wear, coat, times=2) == 3
            assert call.with_id(f"once-{number}")(Coat.wear, coat, times=2) == 3
            with pytest.raises(Aborted, match="TornError"):
                call(Coat.wear, coat, -1)
            call(Coat.delete, coat)
            assert not call(Coat.exists, coat)
            with pytest.raises(NoSuchEntity):
                call(Coat.wear, coat)


def test_prepared_calls_keep_their_types(gateway: RunningGateway) -> None:
    """A pending call's result, and those of a bulk, have the types that the methods declare."""
    with Client(gateway.url, app) as client:
        coats = client.bulk([client.prepare(Coat.create, number) for number in range(10, 20)])
        assert [coat.number for coat in coats] == list(range(10, 20))
        pending = client.send(client.prepare(Coat.line, coats[0], b"a", Fabric("silk", Decimal(1))))
        assert pending.result().name == "silk"


def test_async_call_is_awaited(gateway: RunningGateway) -> None:
    """In an event loop the same expression gives an awaitable of the result."""

    async def story() -> int:
        async with AsyncClient(gateway.url, app) as client:
            coat = await client.call(Coat.create, 30)
            worn = await asyncio.gather(*(client.call(Coat.wear, coat) for _ in range(5)))
            return max(worn)

    assert asyncio.run(story()) == 5
