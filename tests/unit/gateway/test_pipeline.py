"""The pipelined connection, frame by frame, over a real gateway."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.base.pipeline import (
    SUBPROTOCOL,
    Answer,
    Answers,
    Closing,
    Requests,
    Welcome,
    decode_from_gateway,
    encode_frame,
)
from penstock.client.websocket import ConnectionEnded, WebSocket
from penstock.deployment.loading import load_app
from penstock.errors import Forbidden, PenstockError, RequestError, Unauthenticated
from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.principal import granted
from penstock.process.config import GatewayConfig
from tests.checkout import SHOP
from tests.gateway_thread import RunningGateway

WINDOW = 8
FRAME_BYTES = 4_096
SHOP_APP = load_app(SHOP)
Call = tuple[str, bytes]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A shop with a small window and small frames."""
    chosen = GatewayConfig(
        body_bytes_max=FRAME_BYTES, pipeline_window=WINDOW, limits="User.pay 1/d per key"
    )
    with RunningGateway(SHOP, tmp_path_factory.mktemp("shop"), chosen) as running:
        yield running


def call(request_id: str, method: str, *arguments: object, key: str = "i1") -> Call:
    """Return a call of a method of an item."""
    named = {"price": 3, "stock": 0} if method == "create" else {}
    return request_id, SHOP_APP.request("Item", key, method, arguments, named)[0]


def frame_of(*calls: Call) -> bytes:
    return encode_frame(Requests([(name, msgspec.Raw(body)) for name, body in calls]))


def exchanged(url: str, frames: Sequence[bytes], answers: int, key: str = "") -> list[Any]:
    """Send frames, and return what the gateway sends until it has given a number of answers or closes."""
    return asyncio.run(_exchanged(url, frames, answers, key))


async def _exchanged(url: str, frames: Sequence[bytes], answers: int, key: str) -> list[Any]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    socket = await WebSocket.dial(url, {"headers": headers, "verify": False})
    received: list[Any] = []
    try:
        for frame in frames:
            await socket.send(frame)
        while answers > 0:
            received.append(decode_from_gateway(await socket.receive()))
            if isinstance(received[-1], Answers):
                answers -= len(received[-1].answers)
    except ConnectionEnded:
        pass
    finally:
        await socket.close()
    return received


def answers_in(received: Sequence[Any]) -> dict[str, tuple[int, Any]]:
    """Return status and data of each answer, by request id."""
    return {
        answer.request_id: (answer.status, msgspec.msgpack.decode(answer.data))
        for frame in received
        if isinstance(frame, Answers)
        for answer in frame.answers
    }


def works(url: str, name: str) -> bool:
    """Say whether a gateway still answers over a pipeline."""
    received = exchanged(url, [frame_of(call(f"alive-{name}", "exists", key="nothing"))], 1)
    return answers_in(received)[f"alive-{name}"] == (200, False)


def test_requests_of_one_frame_have_their_own_answers(gateway: RunningGateway) -> None:
    """A refused or undone request does not affect the others of its frame, and the connection stays."""
    calls = [
        call("one-1", "create", key="one"),
        call("one-2", "subtract", 5, key="one"),
        ("bad id", b"\x90"),
        ("one-3", b"\x90"),
        call("one-4", "add", 4, key="nobody"),
        ("one-5", msgspec.msgpack.encode(("Item", "one", "nothing", [], {}))),
    ]
    more = [call("one-6", "add", 4, key="one")]
    received = exchanged(gateway.url, [frame_of(*calls), frame_of(*more)], 7)
    assert received[0] == Welcome(WINDOW, FRAME_BYTES)
    answers = answers_in(received)
    assert answers["one-6"] == (200, "Item: one stock updated to: 4")
    codes = {name: (status, data[0]) for name, (status, data) in answers.items() if status != 200}
    assert codes == {
        "one-2": (400, "aborted"),
        "bad id": (400, "request"),
        "one-3": (400, "request"),
        "one-4": (404, "no-such-entity"),
        "one-5": (400, "request"),
    }


def test_request_that_is_sent_again_has_the_same_answer(gateway: RunningGateway) -> None:
    """Two connections with one id get one effect, and another body for it is refused."""
    exchanged(gateway.url, [frame_of(call("twice-0", "create", key="twice"))], 1)
    add = frame_of(call("twice-1", "add", 4, key="twice"))
    first = answers_in(exchanged(gateway.url, [add], 1))
    again = answers_in(exchanged(gateway.url, [add], 1))
    assert first == again == {"twice-1": (200, "Item: twice stock updated to: 4")}
    calls = [call("twice-1", "add", 5, key="twice"), call("twice-2", "add", 1, key="twice")]
    answers = answers_in(exchanged(gateway.url, [frame_of(*calls)], 2))
    assert answers["twice-1"][1][0] == "request-conflict"
    assert answers["twice-2"] == (200, "Item: twice stock updated to: 5")


def test_limit_refuses_a_single_request(gateway: RunningGateway) -> None:
    """A request over a limit has an answer that says when to send it again."""
    bodies = [SHOP_APP.request("User", "u1", "pay", (1,), {})[0] for _ in range(2)]
    calls = [(f"limit-{number}", body) for number, body in enumerate(bodies)]
    received = exchanged(gateway.url, [frame_of(*calls)], 2)
    answers = {one.request_id: one for frame in received[1:] for one in frame.answers}
    refused: Answer = answers["limit-1"]
    assert (refused.status, msgspec.msgpack.decode(refused.data)[0]) == (429, "throttled")
    assert refused.retry_after_s > 1


def closing_of(url: str, frame: bytes) -> Closing:
    received = exchanged(url, [frame], 100)
    assert isinstance(received[-1], Closing), received
    return received[-1]


def test_wrong_frames_end_the_connection_with_a_reason(gateway: RunningGateway) -> None:
    """The last frame of the gateway says which rule a client has broken."""
    too_many = frame_of(*(call(f"many-{number}", "exists") for number in range(WINDOW + 1)))
    assert closing_of(gateway.url, too_many).code == "overloaded"
    too_large = frame_of(
        ("large", b"\xc4\xff" + b"x" * 255), ("larger", b"\xda\x20\x00" + b"x" * 8_192)
    )
    assert closing_of(gateway.url, too_large).status == 413
    deep = b"\x92\xa8requests\x91\x92\xa1a" + b"\x91" * 4_000
    for frame in (b"", b"\x00", deep, encode_frame(Welcome(1, 1))):
        assert closing_of(gateway.url, frame).status == 400
    assert works(gateway.url, "frames")


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=20)), max_size=4).map(
            lambda pairs: msgspec.msgpack.encode(["requests", pairs])
        ),
        st.binary(max_size=40).map(lambda tail: frame_of(call("f", "exists"))[:-3] + tail),
    )
)
def test_no_frame_breaks_a_gateway(gateway: RunningGateway, frame: bytes) -> None:
    """Random bytes end at most their own connection."""
    exchanged(gateway.url, [frame, b"end"], 100)
    assert works(gateway.url, "random")


def test_rights_are_those_of_the_key(tmp_path: Path) -> None:
    """A handshake needs a key, and a request the scope of its method."""
    store = KeyStore(tmp_path)
    secret = store.add("items", granted(["call:Item.exists"]), None, datetime.now(UTC))[1]
    with RunningGateway(SHOP, tmp_path, reads=False) as gateway:
        calls = [call("r1", "exists"), call("r2", "add", 1)]
        answers = answers_in(exchanged(gateway.url, [frame_of(*calls)], 2, secret))
        assert answers["r1"] == (200, False)
        assert (answers["r2"][0], answers["r2"][1][0]) == (403, "forbidden")
        for wrong in ("", "pk_wrong"):
            with pytest.raises(Unauthenticated):
                exchanged(gateway.url, [], 1, wrong)


UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Version": "13",
}


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/pipeline", {"Origin": "https://foreign.example"}, 403),
        ("/pipeline", {"Sec-WebSocket-Protocol": "other"}, 400),
        ("/elsewhere", {}, 404),
    ],
)
def test_refused_handshakes_are_answered_as_http(
    gateway: RunningGateway, path: str, headers: dict[str, str], status: int
) -> None:
    """A page of another site, another subprotocol and another path get no WebSocket."""
    all_headers = {**UPGRADE, "Sec-WebSocket-Protocol": SUBPROTOCOL, **headers}
    answer = httpx.get(f"{gateway.url}{path}", headers=all_headers, timeout=60)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"code", "kind", "message"}


def test_errors_of_the_handshake_are_errors_of_the_client(gateway: RunningGateway) -> None:
    """A server that does not know the WebSocket is an error, not an endless repetition."""

    async def dialled(path: str) -> None:
        await WebSocket.dial(f"{gateway.url}{path}", {"headers": {}})

    with pytest.raises(RequestError):
        asyncio.run(dialled("/nowhere"))

    async def foreign() -> None:
        await WebSocket.dial(gateway.url, {"headers": {"Origin": "https://foreign.example"}})

    with pytest.raises(Forbidden) as raised:
        asyncio.run(foreign())
    assert isinstance(raised.value, PenstockError)
