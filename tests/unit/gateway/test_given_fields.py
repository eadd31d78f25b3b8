"""Over HTTP, a field that nothing reads is an error of the caller, with its path."""

from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from penstock import Client, RequestError
from tests.gateway_thread import RunningGateway

WRONG = {"city": "Ulm", "Zip": 5}
WHAT = "Object contains unknown field `Zip`; the fields are city, zip"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with RunningGateway(
        "tests.unit.base.test_given_type:app", tmp_path_factory.mktemp("shops")
    ) as running:
        yield running


@pytest.mark.parametrize(
    ("path", "body", "what"),
    [
        ("/call/Shop/a/add", [[WRONG]], f"Shop.add: places[0]: {WHAT}"),
        ("/call/Shop/a/add", {"places": [], "more": WRONG}, f"Shop.add: more: {WHAT}"),
        ("/send/Shop/a/add", {"places": [WRONG]}, f"Shop.add: places[0]: {WHAT}"),
        ("/streams/places", [WRONG], f"stream places: events[0]: {WHAT}"),
        ("/send/streams/places", [WRONG], f"stream places: events[0]: {WHAT}"),
    ],
)
def test_unknown_field_in_a_body(gateway: RunningGateway, path: str, body: Any, what: str) -> None:
    """Such a request gets 400, as JSON and as MessagePack, and is not appended."""
    text = httpx.post(gateway.url + path, json=body)
    packed = body if "streams" in path else (body, {}) if isinstance(body, list) else ([], body)
    data = msgspec.msgpack.encode(packed)
    binary = httpx.post(
        gateway.url + path, content=data, headers={"Content-Type": "application/msgpack"}
    )
    for answer in (text, binary):
        assert answer.status_code == 400, answer.text
        assert what in answer.text


def test_unknown_field_from_clients(gateway: RunningGateway) -> None:
    """A client without the application, and a pipeline, get the same error."""
    with Client(gateway.url) as client:
        client.Shop.create("b")
        with pytest.raises(RequestError, match="unknown field `Zip`"):
            client.Shop("b").add([WRONG])
        assert client.Shop("b").add([{"city": "Ulm", "zip": 5}]) == 1
        with client.pipeline() as pipeline:
            pending = pipeline.send(client.prepare.Shop("b").add([WRONG]))
            with pytest.raises(RequestError, match="unknown field `Zip`"):
                pending.result()
