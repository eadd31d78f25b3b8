"""`read_many` and `@readonly` calls of the clients, against a real gateway."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import AsyncClient, Client, NoSuchEntity, RequestError
from tests.gateway_thread import RunningGateway
from tests.unit.client.all_types_app import Coat, app


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with (
        RunningGateway("tests.unit.client.all_types_app:app", tmp_path) as gateway,
        Client(gateway.url, app) as one,
    ):
        for number in (1, 2, 3):
            one.Coat.create(number)
        one.Coat(1).pair(Coat(2))
        one.Coat(2).wear(3)
        yield one


def test_many_reads_are_one_request(client: Client) -> None:
    """`read_many` gives results and errors in order, at one epoch, and appends nothing."""
    before = client.epoch
    with Client(client._address.url) as plain:
        for one in (client, plain):
            calls = [one.prepare.Coat(number).twin_worn() for number in (1, 3, 4)]
            assert one.read_many(calls[:2]) == [3, None]
            found = one.read_many(calls, raise_errors=False)
            assert found[:2] == [3, None]
            assert isinstance(found[2], NoSuchEntity)
            with pytest.raises(NoSuchEntity):
                one.read_many(calls)
            with pytest.raises(RequestError, match=r"call 0: Coat\.wear is not @readonly"):
                one.read_many([one.prepare.Coat(1).wear(1)])
            assert one.read_many([]) == []
            assert one.Coat(1).twin_worn() == 3
            assert one.epoch == before


def test_read_with_a_chosen_id_is_recorded(client: Client) -> None:
    """`request_id=` makes a request of a `@readonly` call, whose result can be asked for again."""
    before = client.epoch
    assert client.Coat(1).twin_worn(request_id="read-1") == 3
    assert client.epoch == before + 1
    assert client.pending("read-1", int).result() == 3


def test_event_loop_reads_many(client: Client) -> None:
    """`AsyncClient` has the same method."""

    async def read() -> list[int | None]:
        async with AsyncClient(client._address.url, app) as one:
            return await one.read_many([one.prepare(Coat.twin_worn, Coat(1))])

    assert asyncio.run(read()) == [3]
