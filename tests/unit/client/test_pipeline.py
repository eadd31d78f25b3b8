"""Pipelines of both clients against a real gateway: results, effects, and connections that break."""

import asyncio
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, BytesMessage, Request

from benchmarks.harness.ports import free_port
from penstock import Aborted, AsyncClient, Client, ConfigError, RecordTooLarge, RequestError
from penstock.base.ids import Epoch
from penstock.base.pipeline import (
    SUBPROTOCOL,
    Answer,
    Answers,
    Welcome,
    decode_requests,
    encode_frame,
)
from penstock.client.pipeline_link import FRAME_REQUESTS
from penstock.client.websocket import WebSocket
from penstock.deployment.loading import load_app
from penstock.errors import NoSuchEntity, PenstockError, RequestConflict, TimedOut, Unreachable
from penstock.process.config import GatewayConfig
from penstock.process.data_directory import DataDirectory
from tests.checkout import SHOP
from tests.cutter import Cutter
from tests.gateway_thread import HOST, RunningGateway
from tests.serial_driver import SerialDriver
from tests.waiting import wait_for

SHOP_APP = load_app(SHOP)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A shop whose connections have a window of 16 requests."""
    chosen = GatewayConfig(body_bytes_max=4_096, pipeline_window=16)
    with RunningGateway(SHOP, tmp_path_factory.mktemp("shop"), chosen) as running:
        yield running


@pytest.mark.parametrize("known", [True, False])
def test_calls_have_their_results(gateway: RunningGateway, *, known: bool) -> None:
    """More calls than the window and a frame take have their results, in any order of asking."""
    name = f"sync-{known}"
    with Client(gateway.url, SHOP_APP if known else None) as client:
        with client.pipeline() as pipeline:
            pipeline.Item.create(name, price=1, stock=0).result()
            sent = [pipeline.Item(name).add(1) for _ in range(300)]
            results = {one.result() for one in reversed(sent)}
        assert results == {f"Item: {name} stock updated to: {n}" for n in range(1, 301)}
        assert client.get("Item", name)["stock"] == 300


def test_results_come_in_the_order_of_the_calls(gateway: RunningGateway) -> None:
    """`results` yields the result of each call in order, and an error in its place."""

    async def run() -> list[object]:
        async with AsyncClient(gateway.url, SHOP_APP) as client:
            await client.Item.create("ordered", price=1, stock=0)
            calls = [client.prepare.Item("ordered").add(1) for _ in range(50)]
            calls[20] = client.prepare.Item("unknown").add(1)
            async with client.pipeline(unanswered=10) as pipeline:
                results = pipeline.results(calls, raise_errors=False)
                return [outcome async for outcome in results]

    outcomes = asyncio.run(run())
    assert isinstance(outcomes.pop(20), NoSuchEntity)
    assert set(outcomes) == {f"Item: ordered stock updated to: {n}" for n in range(1, 50)}


def test_typed_calls_and_their_errors(gateway: RunningGateway) -> None:
    """A call by its method has the type of its result; errors have their classes."""
    item: Any = SHOP_APP.entities["Item"].cls
    with Client(gateway.url, SHOP_APP) as client, client.pipeline() as pipeline:
        created = pipeline.call(item.create, "typed", price=2, stock=1)
        assert created.result() == item("typed")
        assert created.done()
        with pytest.raises(Aborted, match="9 wanted"):
            pipeline.call(item.subtract, item("typed"), 9).result()
        with pytest.raises(RequestError):
            pipeline.call(item.subtract, item("typed"), "9")
        with pytest.raises(ConfigError):
            client.pipeline(unanswered=0)


def test_request_larger_than_a_frame_fails_alone(gateway: RunningGateway) -> None:
    """A request that no frame can carry has an error; those around it have their answers."""
    with Client(gateway.url) as client, client.pipeline() as pipeline:
        sent = [pipeline.Item("small").exists(), pipeline.Item("a").add("x" * 4_096)]
        sent.append(pipeline.Item("small").exists())
        with pytest.raises(RecordTooLarge):
            sent[1].result()
        assert (sent[0].result(), sent[2].result()) == (False, False)


def test_one_id_in_flight_twice_takes_effect_once(gateway: RunningGateway) -> None:
    """Calls with one request id have one effect; a different call with that id is refused."""
    with Client(gateway.url, SHOP_APP) as client, client.pipeline() as pipeline:
        pipeline.Item.create("same", price=1, stock=0).result()
        sent = [pipeline.Item("same").add(2, request_id="same-1") for _ in range(5)]
        other = pipeline.Item("same").add(3, request_id="same-1")
        assert {one.result() for one in sent} == {"Item: same stock updated to: 2"}
        with pytest.raises(RequestConflict):
            other.result()


def test_requests_of_a_broken_connection_take_effect_once(tmp_path: Path) -> None:
    """After a cut, the requests without an answer are sent again; the log has each of them once."""
    chosen = GatewayConfig(pipeline_window=500)
    with (
        RunningGateway(SHOP, tmp_path, chosen, drives=False, reads=False) as gateway,
        Cutter(urlsplit(gateway.url).port or 0) as cutter,
        Client(cutter.url, SHOP_APP, timeout_s=200) as client,
    ):
        log = DataDirectory(tmp_path).open_log()
        driver = SerialDriver(SHOP, gateway.config)
        with client.pipeline() as pipeline:
            first = pipeline.Item.create("cut", price=1, stock=0)
            wait_for(lambda: log.end() == 1, "the first append")
            sent = [pipeline.Item("cut").add(1) for _ in range(200)]
            wait_for(lambda: log.end() == 201, "the appends")
            cutter.cut()
            later = pipeline.Item("cut").add(1)
            wait_for(lambda: log.end() == 202, "the append after the cut")
            driver.start()
            first.result()
            results = {one.result() for one in [*sent, later]}
        assert results == {f"Item: cut stock updated to: {n}" for n in range(1, 202)}
        assert (log.end(), cutter.connections) == (202, 2)
        driver.stop()
        log.close()


def test_answers_that_a_cut_has_lost_come_from_the_journal(tmp_path: Path) -> None:
    """A request that committed before the client heard of it gets its recorded answer."""
    with (
        RunningGateway(SHOP, tmp_path, reads=False) as gateway,
        Client(gateway.url, SHOP_APP) as client,
    ):
        client.Item.create("lost", price=1, stock=0)
        for number in range(40):  # in many epochs
            client.Item("lost").add(1, request_id=f"lost-{number}")
        with client.pipeline() as pipeline:
            sent = [pipeline.Item("lost").add(1, request_id=f"lost-{n}") for n in range(40)]
            results = [one.result() for one in sent]
        assert results == [f"Item: lost stock updated to: {n}" for n in range(1, 41)]
        assert client.get("Item", "lost")["stock"] == 40


def test_requests_are_accepted_before_they_commit(tmp_path: Path) -> None:
    """`accepted` returns as soon as the log has the request; after a cut, and after the answer, too."""
    with (
        RunningGateway(SHOP, tmp_path, drives=False, reads=False) as gateway,
        Cutter(urlsplit(gateway.url).port or 0) as cutter,
        Client(cutter.url, SHOP_APP, timeout_s=200) as client,
        client.pipeline(accepted=True) as pipeline,
    ):
        log = DataDirectory(tmp_path).open_log()
        driver = SerialDriver(SHOP, gateway.config)
        sent = [pipeline.Item.create("durable", price=1, stock=0)]
        sent += [pipeline.Item("durable").add(1) for _ in range(50)]
        for one in sent:
            one.accepted()
        assert (log.end(), any(one.done() for one in sent)) == (51, False)
        cutter.cut()
        undone = pipeline.Item("durable").subtract(99)
        undone.accepted()
        assert (log.end(), undone.done()) == (52, False)
        driver.start()
        assert len({one.result() for one in sent}) == 51
        with pytest.raises(Aborted):
            undone.result()
        sent[0].accepted()
        undone.accepted()
        again = pipeline.Item("durable").add(1, request_id=sent[1].request_id)
        again.accepted()
        driver.stop()
        log.close()


def test_refused_request_is_not_accepted(gateway: RunningGateway) -> None:
    """`accepted` raises the reason of the gateway; without `accepted=True` it cannot tell."""
    with Client(gateway.url) as client:
        with client.pipeline(accepted=True) as pipeline:
            refused = pipeline.Item("a").nothing()
            with pytest.raises(RequestError, match="nothing"):
                refused.accepted()
        with client.pipeline() as pipeline, pytest.raises(ConfigError, match="accepted=True"):
            pipeline.Item("a").exists().accepted()


def test_request_in_no_log_is_not_accepted_in_time() -> None:
    """Nobody has accepted the request yet, and the error says so."""
    with socket.create_server((HOST, 0)) as silent:
        url = f"http://{HOST}:{silent.getsockname()[1]}"
        with (
            pytest.raises(TimedOut, match="not known to be durable"),
            Client(url, timeout_s=0.5, retries=0) as client,
            client.pipeline(accepted=True) as pipeline,
        ):
            pipeline.Item("a").add(1).accepted(0.01)


def test_pipeline_sends_in_its_block_alone() -> None:
    """A call before the block is refused at once: nothing would send it, and its result would never come."""
    with Client("http://127.0.0.1:9", SHOP_APP) as client:
        pipeline = client.pipeline()
        with pytest.raises(ConfigError, match=r"with client\.pipeline"):
            pipeline.Item("i1").add(1)
        with pytest.raises(ConfigError, match=r"with client\.pipeline"):
            list(pipeline.results([client.prepare.Item("i1").add(1)]))


def test_calls_without_a_gateway_fail() -> None:
    """After its attempts a pipeline gives up, and each of its calls has the error."""
    url = f"http://{HOST}:{free_port(HOST)}"
    with Client(url, retries=1) as client, client.pipeline() as pipeline:
        sent = [pipeline.Item("a").add(1) for _ in range(3)]
        for one in sent:
            with pytest.raises(Unreachable):
                one.result()


def test_call_without_an_answer_is_late(tmp_path: Path) -> None:
    """A request that no driver processes is late, and its error says how to get the result."""
    with (
        RunningGateway(SHOP, tmp_path, drives=False, reads=False) as gateway,
        Client(gateway.url, SHOP_APP, timeout_s=1.0) as client,
        client.pipeline() as pipeline,
        pytest.raises(TimedOut, match="late-1"),
    ):
        pipeline.Item("a").add(1, request_id="late-1").result()


def test_block_that_fails_does_not_wait(tmp_path: Path) -> None:
    """An error in the block leaves it at once; the calls get an error, and later calls, too."""
    with (
        RunningGateway(SHOP, tmp_path, drives=False, reads=False) as gateway,
        Client(gateway.url, SHOP_APP) as client,
    ):
        pipeline = client.pipeline()
        pipeline.__enter__()
        waiting = pipeline.Item("a").add(1)
        pipeline.__exit__(ZeroDivisionError, None, None)
        for call in (waiting, pipeline.Item("a").add(1)):
            with pytest.raises(PenstockError, match="closed"):
                call.result()


def sizes_of_frames(listener: socket.socket, count: int) -> list[int]:
    """Accept a pipelined connection and answer all requests; return the number of requests in each frame."""
    connection, _ = listener.accept()
    server = WSConnection(ConnectionType.SERVER)
    sizes: list[int] = []
    frame = b""
    with connection:
        while sum(sizes) < count:
            server.receive_data(connection.recv(65_536))
            for event in server.events():
                if isinstance(event, Request):
                    connection.sendall(server.send(AcceptConnection(subprotocol=SUBPROTOCOL)))
                    welcome = encode_frame(Welcome(10_000, 1 << 20))
                    connection.sendall(server.send(BytesMessage(data=welcome)))
                elif isinstance(event, BytesMessage):
                    frame += event.data
                    if event.message_finished:
                        pairs, frame = decode_requests(frame).requests, b""
                        sizes.append(len(pairs))
                        nothing = msgspec.Raw(b"\xc0")
                        answers = [Answer(name, 200, Epoch(1), nothing) for name, _ in pairs]
                        answered = BytesMessage(data=encode_frame(Answers(answers)))
                        connection.sendall(server.send(answered))
    return sizes


def test_frames_of_requests_are_short() -> None:
    """The gateway appends the first requests while the client prepares the next: a frame has a bounded number of them."""
    count = 2 * FRAME_REQUESTS + 1

    async def send(url: str) -> None:
        async with AsyncClient(url) as client:
            calls = [client.prepare.Item("a").add(number) for number in range(count)]
            async with client.pipeline(unanswered=count) as pipeline:
                for sent in [await pipeline.send(call) for call in calls]:
                    assert await sent.result() is None

    with socket.create_server((HOST, 0)) as listener, ThreadPoolExecutor(1) as threads:
        taken = threads.submit(sizes_of_frames, listener, count)
        asyncio.run(send(f"http://{HOST}:{listener.getsockname()[1]}"))
        sizes = taken.result(60)
    assert sum(sizes) == count
    assert max(sizes) == FRAME_REQUESTS


def welcome_and_sleep(listener: socket.socket, connections: list[socket.socket]) -> None:
    """Take one connection, welcome it, and read nothing more."""
    connection, _ = listener.accept()
    connections.append(connection)
    server = WSConnection(ConnectionType.SERVER)
    while server.state is ConnectionState.CONNECTING:
        server.receive_data(connection.recv(65_536))
        if [event for event in server.events() if isinstance(event, Request)]:
            connection.sendall(server.send(AcceptConnection(subprotocol=SUBPROTOCOL)))
    welcome = encode_frame(Welcome(1_000, 1 << 20))
    connection.sendall(server.send(BytesMessage(data=welcome)))


def test_gateway_that_reads_nothing_delays_no_end() -> None:
    """A connection ends at once, although it takes no further byte of a message."""

    async def ended(url: str) -> None:
        websocket = await WebSocket.dial(url, {"headers": {}})
        await websocket.receive()
        sending = asyncio.create_task(websocket.send(b"x" * (64 << 20)))
        await asyncio.sleep(0)  # it begins, and fills the buffers of the connection
        async with asyncio.timeout(60):
            await websocket.close()
            await asyncio.wait([sending])
        assert sending.exception() is not None  # the message was never taken

    connections: list[socket.socket] = []
    with socket.create_server((HOST, 0)) as listener, ThreadPoolExecutor(1) as threads:
        taken = threads.submit(welcome_and_sleep, listener, connections)
        asyncio.run(ended(f"http://{HOST}:{listener.getsockname()[1]}"))
        taken.result(60)
    for connection in connections:
        connection.close()


def test_gateway_that_never_answers_delays_no_end() -> None:
    """A block ends although the handshake of its connection has no answer, which would be late after a minute."""

    def leave(url: str) -> None:
        with Client(url, SHOP_APP) as client:
            pipeline = client.pipeline()
            pipeline.__enter__()
            waiting = pipeline.Item("a").add(1)
            with listener.accept()[0]:
                pipeline.__exit__(ZeroDivisionError, None, None)
                with pytest.raises(PenstockError, match="closed"):
                    waiting.result()

    with socket.create_server((HOST, 0)) as listener, ThreadPoolExecutor(1) as threads:
        left = threads.submit(leave, f"http://{HOST}:{listener.getsockname()[1]}")
        left.result(45)
