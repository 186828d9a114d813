"""An empty endpoint on the RESTful door's HTTP server: the cost of HTTP itself. A program; its argument is the port."""

import asyncio
import sys
from http import HTTPStatus

import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frontends.logins.connection_limits import ConnectionLimits
from frontends.rest.http.server import HttpServer


async def nothing(_request: Request) -> Response:
    """Answer with an empty object."""
    return Response(b"{}", HTTPStatus.OK)


async def serve(port: int) -> None:
    """Serve until the process is ended."""
    app = Starlette(routes=[Route("/{path:path}", nothing, methods=["GET", "POST", "DELETE"])])
    server = HttpServer(
        app,
        "127.0.0.1",
        port,
        slow_seconds=10,
        header_bytes=16_384,
        connection_limits=ConnectionLimits(1_000, 1_000),
        keep_alive_seconds=75,
        drain_seconds=1,
    )
    server.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
