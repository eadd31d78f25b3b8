"""A server whose only Starlette route does nothing: it measures the cost of HTTP for `bench http`.

Run as `python benchmarks/harness/empty_route.py PORT`.
"""

import asyncio
import sys

import uvloop
from granian.constants import HTTPModes, Interfaces
from granian.server.embed import Server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route


async def nothing(_: Request) -> PlainTextResponse:
    """Answer at once."""
    return PlainTextResponse("Checkout successful")


async def serve(port: int) -> None:
    """Serve until the process is killed."""
    routes = [Route("/orders/checkout/{order_id}", nothing, methods=["POST"])]
    server = Server(
        Starlette(routes=routes),
        port=port,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        websockets=False,
        backlog=4_096,
        log_enabled=False,
    )
    await asyncio.shield(server.serve())


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
