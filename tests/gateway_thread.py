"""A gateway on a port of its own, in this process: the real one, over the real log and journal.

`RunningGateway` serves an application that a `SerialDriver` processes. `Meddler` stands before it as
a network that fails: it passes on one HTTP message at a time, and treats each as told.
"""

import asyncio
import atexit
import contextlib
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any, Self

import httpx
from granian._granian import ListenerSpec

from benchmarks.harness.ports import free_port
from penstock.console.routes import console_handlers
from penstock.deployment.code_in_force import CodeInForce
from penstock.deployment.loading import load_app
from penstock.engine.execute import Limits
from penstock.gateway.reader_pool import ReaderNursery
from penstock.gateway.serving import Assembly, VersionSwitch, assemble, server_of, url_of
from penstock.log.kafka_config import KafkaConfig
from penstock.process.config import Config, GatewayConfig, TargetSettings
from penstock.process.metrics import VARIABLE
from penstock.process.serving import serving
from tests.serial_driver import SerialDriver

HOST = "127.0.0.1"
_PATIENCE = httpx._config.DEFAULT_TIMEOUT_CONFIG  # 5 s, which an answer may take on a busy machine
_PATIENCE.connect = _PATIENCE.read = _PATIENCE.write = _PATIENCE.pool = 60.0


def _surroundings() -> object:
    """Return what a process gets of the present one at its start: its folder, its environment, and where its errors go."""
    errors = os.fstat(2)
    environment = {**os.environ}
    environment.pop("PYTEST_CURRENT_TEST", None)  # pytest writes it before each test
    environment.pop(VARIABLE, None)  # the first gateway of a process writes it, and it stays
    return Path.cwd(), environment, errors.st_dev, errors.st_ino


_NURSERY = ReaderNursery()
"""Starts the readers of all gateways with the usual surroundings; for each gateway, it would take half a second of a processor."""

_USUAL = _surroundings()
atexit.register(_NURSERY.close)


def _choose_port(server: Any) -> None:
    server._ssp = ListenerSpec(server.bind_addr, server.bind_port, server.backlog)


class RunningGateway:
    """An application's gateway, and its driver unless it has one, until the `with` block ends."""

    def __init__(  # noqa: PLR0913 -- the settings of an application
        self,
        spec: str,
        data: Path,
        settings: GatewayConfig | None = None,
        *,
        drives: bool = True,
        limits: Limits | None = None,
        views: Mapping[str, TargetSettings] | None = None,
        kafka: KafkaConfig | None = None,
        reads: bool = True,
    ) -> None:
        """Choose a port.

        Args:
            reads: Whether it has readers, which take 0.1 s of a processor.
        """
        chosen = replace(settings or GatewayConfig(), port=free_port(HOST))
        if not reads:
            chosen = replace(chosen, readers=0)
        self.config = Config(
            data=data,
            cores=1,
            gateway=chosen,
            limits=limits or Limits(),
            views=views or {},
            kafka=kafka or KafkaConfig(),
        )
        self.url = url_of(chosen)
        self.driver = SerialDriver(spec, self.config) if drives else None
        self._spec = spec
        self._app = load_app(spec)
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._assembly: Assembly | None = None
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="gateway")

    def __enter__(self) -> Self:
        if self.driver is not None:
            self.driver.start()
        self._thread.start()
        assert self._ready.wait(120), "the gateway does not start"
        if self._failure is not None:
            self.__exit__()
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self.driver is not None:
            self.driver.stop()

    @property
    def deployments(self) -> CodeInForce:
        """The part of the gateway that follows deployments."""
        assert self._assembly is not None, "the gateway has started"
        return self._assembly.deployments

    @property
    def versions(self) -> VersionSwitch:
        """The part of the gateway that exchanges its version."""
        assert self._assembly is not None, "the gateway has started"
        return self._assembly.versions

    def refuse_waiting(self) -> None:
        """Begin to stop, as on SIGTERM, and go on serving."""
        assert self._assembly is not None, "the gateway has started"
        self._loop.call_soon_threadsafe(self._assembly.refuse_waiting)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except Exception as error:  # noqa: BLE001 -- raised where the test waits for the start
            self._failure = error
            self._ready.set()
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        console = partial(console_handlers, config=self.config, dev=False)
        nursery = _NURSERY if _surroundings() == _USUAL else ReaderNursery()
        assembly = await assemble(self._app, self._spec, self.config, nursery, more=console)
        self._assembly = assembly
        settings = self.config.gateway
        server = server_of(assembly.served, settings, assembly.connections.most)
        # The server tries the port with a socket that it never closes: a worker of the suite had hundreds of them.
        vars(server)["_init_shared_socket"] = partial(_choose_port, server)
        keeping = asyncio.create_task(assembly.connections.keep_room(settings.port))
        try:
            async with serving(server, lambda: asyncio.open_connection(HOST, settings.port)):
                self._ready.set()
                await self._stop.wait()
                assembly.refuse_waiting()
        finally:
            keeping.cancel()
            await assembly.close()
            if nursery is not _NURSERY:
                nursery.close()


class Meddling(Enum):
    """The fate of one request on its way."""

    CUT_BEFORE = "the connection ends before the gateway hears of it"
    CUT_AFTER = "the gateway answers, and the connection ends before the client hears of it"
    BUSY = "another server answers 503"
    SILENCE = "the gateway answers, and the client hears nothing"


class Meddler:
    """Passes HTTP messages on; `then` sets the fate of the next messages.

    New connections go to the port `target`.
    """

    def __init__(self, target: int) -> None:
        self.then: deque[Meddling] = deque()
        self.requests = 0
        self.target = target
        self._listener = socket.create_server((HOST, 0))
        self._closed = threading.Event()
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, name="meddler")]

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in list(self._open):
            end(one)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            gateway = socket.create_connection((HOST, self.target))
            self._open += [client, gateway]
            thread = threading.Thread(target=self._carry, args=(client, gateway))
            self._threads.append(thread)
            thread.start()

    def _carry(self, client: socket.socket, gateway: socket.socket) -> None:
        with client, gateway, client.makefile("rb") as asks, gateway.makefile("rb") as answers:
            with contextlib.suppress(OSError):
                while request := message_of(asks):
                    self.requests += 1
                    self._pass_on(request, client, gateway, lambda: message_of(answers))
            end(client)
            end(gateway)

    def _pass_on(
        self,
        request: bytes,
        client: socket.socket,
        gateway: socket.socket,
        answer: Callable[[], bytes],
    ) -> None:
        match self.then.popleft() if self.then else None:
            case Meddling.CUT_BEFORE:
                raise ConnectionAbortedError
            case Meddling.BUSY:
                client.sendall(b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy")
            case Meddling.CUT_AFTER:
                gateway.sendall(request)
                answer()
                raise ConnectionAbortedError
            case Meddling.SILENCE:
                gateway.sendall(request)
                answer()
                self._closed.wait()
            case None:
                gateway.sendall(request)
                client.sendall(answer())


def message_of(stream: BufferedReader) -> bytes:
    """Read one HTTP message whose length is told; empty at the end of the stream."""
    lines = [stream.readline()]
    length = 0
    while lines[-1] not in (b"", b"\r\n"):
        name, _, value = lines[-1].partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
        lines.append(stream.readline())
    return b"".join(lines) + stream.read(length) if lines[-1] else b""


def end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
