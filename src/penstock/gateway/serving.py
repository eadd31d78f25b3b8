"""One gateway as a process: a socket, an event loop, and a graceful end.

SIGTERM and SIGINT, or the end of standard input where a supervisor holds it, begin the drain: new
requests and those that are not in the log yet get 503, those in the log get their answers, then the
process ends. Several gateways share
one port (`SO_REUSEPORT`), and the kernel spreads connections over them.
"""

import asyncio
import logging
import socket
from functools import partial
from pathlib import Path
from typing import Final

import uvloop
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server
from starlette.types import ASGIApp

from penstock.errors import TimedOut
from penstock.gateway.assembly import assemble
from penstock.gateway.version import MoreHandlers, no_handlers
from penstock.journal.deployments import Deployment
from penstock.model.application import App
from penstock.process import presence
from penstock.process.config import Config, GatewayConfig
from penstock.process.process_limits import keep_present_objects
from penstock.process.serving import serving, until_stopped
from penstock.process.stop import stop_event

_log = logging.getLogger(__name__)

BACKLOG: Final = 4_096
_LAST_ANSWERS_S: Final = 2.0
UNSET: Final = Path()
_REACHED_AT: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 -- names, binding to none


def serve_gateway(
    app: App,
    spec: str,
    config: Config,
    *,
    more: MoreHandlers = no_handlers,
    supervised: bool = False,
) -> None:
    """Serve an application's requests until this process is asked to stop.

    Args:
        config: Its settings; `config.gateway.port` is not 0.
        supervised: Whether the end of standard input asks to stop, too.
    """
    uvloop.run(_serve(app, spec, config, more, supervised=supervised))


async def _serve(
    app: App, spec: str, config: Config, more: MoreHandlers, *, supervised: bool
) -> None:
    settings = config.gateway
    host = _REACHED_AT.get(settings.host, settings.host)
    async with stop_event(supervised=supervised) as stop:
        assembly = await assemble(app, spec, config, more=more)
        keeping = asyncio.create_task(assembly.connections.keep_room(settings.port))
        server = server_of(assembly.served, settings, assembly.connections.most)
        try:
            async with serving(
                server, lambda: asyncio.open_connection(host, settings.port)
            ) as task:
                url, deployments = url_of(settings), assembly.deployments
                with presence.present(config.data, "gateway", spec, url=url) as announcement:
                    deployments.on_served = partial(_announce, announcement)
                    if deployments.served is not None:
                        deployments.on_served(deployments.served)
                    keep_present_objects()
                    assembly.versions.on_retired = keep_present_objects
                    await until_stopped(stop, task)
                    assembly.refuse_waiting()
                    if not await assembly.gateway.drain(settings.drain_ms / 1_000):
                        _log.warning(
                            "the gateway stops while requests still wait; ask for them by their ids"
                        )
                        assembly.tail.fail(
                            TimedOut(
                                "the gateway stops before the reply; the request is durable and "
                                "will be processed; ask again with the same request id"
                            )
                        )
                        await assembly.gateway.drain(_LAST_ANSWERS_S)
        finally:
            keeping.cancel()
            await assembly.close()


def _announce(announcement: presence.Announcement, deployment: Deployment) -> None:
    """Tell other processes which deployment this gateway serves."""
    try:
        announcement.tell(deployment=deployment.number)
    except OSError as error:
        _log.warning("other processes cannot see which code this gateway serves: %s", error)


def url_of(settings: GatewayConfig) -> str:
    """Return where the gateways are reached."""
    scheme = "https" if settings.tls_certificate != UNSET else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{scheme}://{host}:{settings.port}"


def server_of(gateway: ASGIApp, settings: GatewayConfig, connections_max: int) -> Server:
    """Return the HTTP server of a gateway, an ASGI application; it does not run yet."""
    tls = settings.tls_certificate != UNSET
    return Server(
        # The server copies the attributes of its application, and would keep a former version alive.
        lambda scope, receive, send: gateway(scope, receive, send),
        address=settings.host,
        port=settings.port,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        websockets=True,
        backlog=BACKLOG,
        backpressure=connections_max,  # further connections wait in the backlog
        http1_settings=HTTP1Settings(
            header_read_timeout=settings.receive_timeout_ms,
            max_buffer_size=max(8_192 * 2, settings.header_bytes_max * 2),
        ),
        log_enabled=False,
        ssl_cert=settings.tls_certificate if tls else None,
        ssl_key=settings.tls_key if tls else None,
    )


def free_port(host: str) -> int:
    """Return a TCP port that is free now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
