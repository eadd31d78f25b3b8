"""Delayed calls of clients: when they are performed, and their cancellation."""

from collections.abc import Iterator

import pytest

from penstock import Cancelled, Client, RequestError, TimedOut, TooLate
from tests.gateway_thread import RunningGateway
from tests.unit.client.all_types_app import app


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("wardrobe")
    spec = "tests.unit.client.all_types_app:app"
    with RunningGateway(spec, folder) as running, Client(running.url, app) as client:
        for number in range(3):
            client.Coat.create(number)
        yield client


def test_call_can_be_sent_for_later(client: Client) -> None:
    """A delayed call waits its time, durably, and is performed once."""
    number = 0
    call = client.prepare.Coat(number).wear(5, request_id="later")
    sent = client.send(call, delay_s=3_600)
    assert client.send(call, delay_s=3_600).request_id == sent.request_id == "later"
    assert not sent.done()
    with pytest.raises(TimedOut, match="scheduled"):
        sent.result(timeout_s=0.1)
    assert client.Coat(number).wear(0) == 0


def test_delayed_call_can_be_cancelled(client: Client) -> None:
    """A cancelled call is never performed, and its result is `Cancelled`; later it is `TooLate`."""
    number = 1
    sent = client.send(client.prepare.Coat(number).wear(5), delay_s=3_600)
    client.cancel(sent.request_id)
    client.cancel(sent.request_id)
    with pytest.raises(Cancelled):
        sent.result()
    assert client.Coat(number).wear(0, request_id="worn") == 0
    with pytest.raises(TooLate, match="worn"):
        client.cancel("worn")
    with pytest.raises(RequestError, match="no request has the id unheard-of"):
        client.cancel("unheard-of")


def test_delayed_call_is_performed_when_it_is_due(client: Client) -> None:
    """A caller that waits for a delayed call gets its result when it is due, and it ran once."""
    number = 2
    assert client.send(client.prepare.Coat(number).wear(5), delay_s=0.3).result() == 5
    assert client.Coat(number).wear(0) == 5
