"""A pipelined connection without a gateway: its frames, its end, and requests that outlive it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.base.ids import Epoch, Lsn, RequestId
from penstock.base.pipeline import (
    SUBPROTOCOL,
    Accepted,
    Requests,
    Welcome,
    decode_from_gateway,
    encode_frame,
)
from penstock.deployment.loading import load_app
from penstock.gateway.auth.authentication import Authenticator
from penstock.gateway.auth.principal import ANONYMOUS, Principal
from penstock.gateway.connections import Connections
from penstock.gateway.flow.admission import Ticket
from penstock.gateway.intake import Admitted
from penstock.gateway.pipeline.endpoint import FRAME_ANSWERS, PipelineConnection, PipelineEndpoint
from penstock.gateway.pipeline.intake import PipelinedRequest, PipelineIntake
from penstock.gateway.telemetry.load_sampler import LoadSampler
from penstock.gateway.telemetry.metrics import Metrics
from penstock.log.api import Entry
from penstock.model.reply import Reply
from penstock.process.config import Config, GatewayConfig
from tests.checkout import SHOP

SHOP_APP = load_app(SHOP)
Call = tuple[str, bytes]


def frame_of(*calls: Call) -> bytes:
    return encode_frame(Requests([(name, msgspec.Raw(body)) for name, body in calls]))


class Wire:
    """The two ends of a WebSocket for a connection without a network."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        self.sent: asyncio.Queue[Any] = asyncio.Queue()
        self.is_read = asyncio.Event()
        self.is_read.set()

    async def receive(self) -> dict[str, Any]:
        return {"type": "websocket.receive", "bytes": await self.frames.get()}

    async def send(self, message: Any) -> None:
        await self.is_read.wait()
        self.sent.put_nowait(decode_from_gateway(message["bytes"]))


class KeepingIntake(PipelineIntake):
    """Keeps requests, which the test answers."""

    def __init__(self) -> None:
        self.kept: asyncio.Queue[PipelinedRequest] = asyncio.Queue()

    async def take(self, principal: Principal, requests: Sequence[PipelinedRequest]) -> None:
        for request in requests:
            self.kept.put_nowait(request)


async def identify() -> Principal:
    return ANONYMOUS


def connected(wire: Wire, intake: PipelineIntake) -> PipelineConnection:
    return PipelineConnection(
        GatewayConfig(receive_timeout_ms=60_000),
        identify,
        intake,
        lambda status, took_s: None,
        wire.receive,
        wire.send,
    )


def reply(request_id: str, data: bytes) -> Reply:
    return Reply(RequestId(request_id), Lsn(1), Epoch(1), None, data)


def test_connection_that_stops_gives_its_last_answers() -> None:
    """Requests after the stop are refused; those before it are answered, then the connection ends."""

    async def stopped() -> list[Any]:
        wire, intake = Wire(), KeepingIntake()
        connection = connected(wire, intake)
        running = asyncio.create_task(connection.run())
        wire.frames.put_nowait(frame_of(("early", b"\xc0")))
        early = await intake.kept.get()
        connection.stop()
        wire.frames.put_nowait(frame_of(("late", b"\xc0")))
        received = [await wire.sent.get() for _ in range(2)]
        early.set_result(reply("early", b"\x07"))
        await running
        return received + [wire.sent.get_nowait() for _ in range(wire.sent.qsize())]

    welcome, late, early, closing = asyncio.run(stopped())
    assert isinstance(welcome, Welcome)
    assert [(one.request_id, one.status) for one in late.answers] == [("late", 503)]
    assert late.answers[0].retry_after_s > 0, "the client sends it to another gateway"
    assert [(one.request_id, one.status) for one in early.answers] == [("early", 200)]
    assert closing.code == "stopping"


def test_client_that_asks_hears_of_durable_requests() -> None:
    """Their ids come before their answers; a request with an answer is not named, nor one of another frame."""

    async def accepted() -> list[Any]:
        wire, intake = Wire(), KeepingIntake()
        connection = connected(wire, intake)
        running = asyncio.create_task(connection.run())
        calls = [(name, msgspec.Raw(b"\xc0")) for name in ("first", "second", "answered")]
        wire.frames.put_nowait(encode_frame(Requests(calls, accepted=True)))
        wire.frames.put_nowait(frame_of(("silent", b"\xc0")))
        requests = [await intake.kept.get() for _ in range(4)]
        requests[2].set_result(reply("answered", b"\x07"))
        for request in requests:
            request.accept(Lsn(0))
        received = [await wire.sent.get() for _ in range(3)]
        requests[0].set_result(reply("first", b"\x07"))
        received.append(await wire.sent.get())
        running.cancel()
        return received

    _, durable, answered, first = asyncio.run(accepted())
    assert durable == Accepted(["first", "second"])
    assert [one.request_id for one in answered.answers] == ["answered"]
    assert [one.request_id for one in first.answers] == ["first"]


def test_frames_of_answers_are_short() -> None:
    """The client takes the first answers while the gateway encodes the next ones: a frame has a bounded number of them."""

    async def answered(count: int) -> list[Any]:
        wire, intake = Wire(), KeepingIntake()
        connection = connected(wire, intake)
        running = asyncio.create_task(connection.run())
        wire.frames.put_nowait(frame_of(*((f"r{n}", b"\xc0") for n in range(count))))
        for request in [await intake.kept.get() for _ in range(count)]:
            request.set_result(reply(request.request_id, b"\x07"))
        connection.stop()
        await running
        return [wire.sent.get_nowait() for _ in range(wire.sent.qsize())]

    count = 2 * FRAME_ANSWERS + 1
    _, *frames, _ = asyncio.run(answered(count))
    assert [len(frame.answers) for frame in frames] == [FRAME_ANSWERS, FRAME_ANSWERS, 1]
    names = [answer.request_id for frame in frames for answer in frame.answers]
    assert names == [f"r{n}" for n in range(count)]


class HalfIntake(PipelineIntake):
    """Admits requests until one whose arguments take for ever; it only notes the appended ones."""

    def __init__(self) -> None:
        self.is_encoding = asyncio.Event()
        self.appended: list[str] = []

    async def _admit(
        self, principal: Principal, request: PipelinedRequest, admitted: list[Admitted]
    ) -> None:
        if request.request_id == "endless":
            self.is_encoding.set()
            await asyncio.Event().wait()
        entry = Entry(RequestId(request.request_id), b"", b"", 0)
        admitted.append(Admitted(request, Ticket("", ()), entry))

    def _append(self, admitted: list[Admitted]) -> None:
        self.appended += [item.entry.request_id for item in admitted]
        admitted.clear()


def test_admitted_requests_outlive_their_connection() -> None:
    """They are appended when the client leaves during the encoding of another one, so nothing counts them for ever."""

    async def left() -> list[str]:
        wire, intake = Wire(), HalfIntake()
        running = asyncio.create_task(connected(wire, intake).run())
        wire.frames.put_nowait(frame_of(("first", b"\xc0"), ("endless", b"\xc0")))
        await intake.is_encoding.wait()
        running.cancel()
        await asyncio.wait([running])
        return intake.appended

    assert asyncio.run(left()) == ["first"]


def test_stop_during_a_handshake_ends_the_connection(tmp_path: Path) -> None:
    """A gateway that stops waits for no connection that it has just accepted."""

    async def accepted() -> list[str]:
        intake = KeepingIntake()
        intake.settings = GatewayConfig()
        load = LoadSampler(tmp_path, lambda: Lsn(0), lambda: Lsn(0))
        authenticator = Authenticator.of(Config(data=tmp_path), SHOP_APP)
        endpoint = PipelineEndpoint(
            authenticator, intake, Metrics(tmp_path), load, Connections(100)
        )
        messages: asyncio.Queue[Any] = asyncio.Queue()
        messages.put_nowait({"type": "websocket.connect"})
        sent: list[str] = []

        async def send(message: Any) -> None:
            sent.append(message["type"])
            if message["type"] == "websocket.accept":
                endpoint.stop()

        scope = {"path": "/pipeline", "headers": [], "subprotocols": [SUBPROTOCOL]}
        async with asyncio.timeout(60):
            await endpoint(scope, messages.get, send)
        return sent

    assert asyncio.run(accepted()) == ["websocket.accept", "websocket.send", "websocket.send"]


def test_slow_reader_loses_its_connection_and_not_the_memory() -> None:
    """Answers that a client does not read are bounded in bytes."""

    async def flooded() -> int:
        wire, intake = Wire(), KeepingIntake()
        running = asyncio.create_task(connected(wire, intake).run())
        assert isinstance(await wire.sent.get(), Welcome)
        wire.is_read.clear()
        wire.frames.put_nowait(frame_of(*((f"s{number}", b"\xc0") for number in range(100))))
        big = msgspec.msgpack.encode(b"x" * (1 << 20))
        for number in range(100):
            (await intake.kept.get()).set_result(reply(f"s{number}", big))
        await running
        return wire.sent.qsize()

    assert asyncio.run(flooded()) == 0
