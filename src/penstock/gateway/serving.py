"""One gateway as a process: a socket, an event loop, and a graceful end.

SIGTERM and SIGINT, or the end of standard input where a supervisor holds it, begin the drain: new
requests get 503, those that wait get their answers, then the process ends. Several gateways share
one port (`SO_REUSEPORT`), and the kernel spreads connections over them.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import uvloop
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server
from starlette.routing import BaseRoute

from penstock.gateway.assembly import assemble
from penstock.model.application import App
from penstock.process import presence
from penstock.process.config import Config, GatewayConfig

_log = logging.getLogger(__name__)

BACKLOG: Final = 4_096
AT_ONCE: Final = 130
"""Exit code after a second signal."""

UNSET: Final = Path()
_REACHED_AT: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 -- names, binding to none


def serve_gateway(
    app: App, spec: str, config: Config, *, more: Sequence[BaseRoute] = (), supervised: bool = False
) -> None:
    """Serve an application's requests until this process is asked to stop.

    Args:
        app: The application.
        spec: How the command line named it.
        config: Its settings; `config.gateway.port` is not 0.
        more: Other routes to serve beside.
        supervised: Whether the end of standard input asks to stop, too.

    Raises:
        ConfigError: The settings of keys, tokens or TLS cannot be used.
        PenstockError: Log or journal cannot be opened.
    """
    uvloop.run(_serve(app, spec, config, more, supervised=supervised))


async def _serve(
    app: App, spec: str, config: Config, more: Sequence[BaseRoute], *, supervised: bool
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, lambda: os._exit(AT_ONCE) if stop.is_set() else stop.set())
    watching = asyncio.create_task(_stop_at_end_of_input(stop)) if supervised else None
    settings = config.gateway
    assembly = await assemble(app, spec, config, more=more)
    server = _server(assembly.served, settings)
    serving = asyncio.create_task(server.serve())
    stopped = asyncio.create_task(stop.wait())
    try:
        await _until_listening(settings, serving)
        with presence.present(config.data, "gateway", spec, url=url_of(settings)):
            await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not await assembly.gateway.drain(settings.drain_ms / 1_000):
                _log.warning("stopping although requests still wait; their ids tell what became")
    finally:
        server.stop()  # type: ignore[no-untyped-call]
        await asyncio.wait({serving}, timeout=5)
        stopped.cancel()
        if watching is not None:
            watching.cancel()
        await assembly.close()


def url_of(settings: GatewayConfig) -> str:
    """Return where the gateways are reached."""
    scheme = "https" if settings.tls_certificate != UNSET else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{scheme}://{host}:{settings.port}"


def _server(gateway: object, settings: GatewayConfig) -> Server:
    tls = settings.tls_certificate != UNSET
    return Server(
        gateway,
        address=settings.host,
        port=settings.port,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        websockets=False,
        backlog=BACKLOG,
        backpressure=settings.waiting_max + BACKLOG,
        http1_settings=HTTP1Settings(
            header_read_timeout=settings.receive_timeout_ms,
            max_buffer_size=max(8_192 * 2, settings.header_bytes_max * 2),
        ),
        log_enabled=False,
        ssl_cert=settings.tls_certificate if tls else None,
        ssl_key=settings.tls_key if tls else None,
    )


async def _until_listening(settings: GatewayConfig, serving: asyncio.Task[None]) -> None:
    """Wait until the port takes connections."""
    host = _REACHED_AT.get(settings.host, settings.host)
    while not serving.done():
        try:
            _, writer = await asyncio.open_connection(host, settings.port)
        except OSError:
            await asyncio.sleep(0.01)
        else:
            writer.close()
            return
    await serving


async def _stop_at_end_of_input(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(1_024):
        pass
    stop.set()


def free_port(host: str) -> int:
    """Return a TCP port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
