"""FastAPI apps that publish, against a real service and under test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import pytest
from fastapi import Depends, FastAPI
from httpx import ASGITransport, AsyncClient
from starlette.types import Receive, Scope, Send

from stanzaq import Publisher, StanzaqError
from stanzaq.fastapi import get_publisher, lifespan
from tests.doors.frontend import ALICE, PASSWORD
from tests.doors.rest.served import RestFrontend, client
from tests.frameworks.documented import import_programs


def made(url: str) -> FastAPI:
    """Make an app that publishes what it gets."""
    app = FastAPI(lifespan=lifespan(Publisher(url, password=PASSWORD)))

    @app.post("/orders")
    async def order(total: int, publisher: Annotated[Publisher, Depends(get_publisher)]) -> str:
        return await publisher.publish("fastapi-orders", {"total": total})

    return app


@asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[AsyncClient]:
    """Serve an app as a web server does: requests have the state of its lifespan."""
    async with app.router.lifespan_context(app) as state:

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, "state": dict(state or {})}, receive, send)

        async with AsyncClient(transport=ASGITransport(serve), base_url="http://web") as web:
            yield web


async def test_publisher(door: RestFrontend) -> None:
    """An app opens one publisher, which requests get; what they publish is in the queue."""
    with client(door) as owner:
        assert owner.put("/queues/fastapi-orders").status_code == 201
        async with served(made(f"http://{ALICE}@127.0.0.1:{door.port}")) as web:
            for total in (1, 2):
                item = (await web.post("/orders", params={"total": total})).json()
                found = owner.get(f"/messages/fastapi-orders/{item}", headers={"Accept": "application/json"})
                assert found.status_code == 200 and str(total) in found.text


async def test_no_lifespan() -> None:
    """A handler without an open publisher is told what to write."""
    async with AsyncClient(transport=ASGITransport(made("http://127.0.0.1:1")), base_url="http://web") as web:
        with pytest.raises(StanzaqError, match=r"^the app has no publisher: write FastAPI\(lifespan="):
            await web.post("/orders", params={"total": 1})


async def test_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The app in library.md sends for its task, under the test beside it."""
    await import_programs(monkeypatch, "thumbnails", "web", "test_web").test_resize()
