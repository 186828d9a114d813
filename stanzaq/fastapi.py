"""A publisher for an app of FastAPI, opened with the app, and a dependency of its requests. Must not know what it sends."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import FastAPI
from fastapi.requests import HTTPConnection

from stanzaq.errors import StanzaqError
from stanzaq.publisher.publisher import Publisher

_STATE = "stanzaq"


def lifespan(publisher: Publisher) -> Callable[[FastAPI], AbstractAsyncContextManager[dict[str, Publisher]]]:
    """Return a lifespan that opens a publisher for an app: `app = FastAPI(lifespan=lifespan(Publisher(…)))`."""

    @asynccontextmanager
    async def opened(_app: FastAPI) -> AsyncIterator[dict[str, Publisher]]:
        async with publisher:
            yield {_STATE: publisher}

    return opened


def get_publisher(connection: HTTPConnection) -> Publisher:
    """Return the app's publisher, as a dependency: `Annotated[Publisher, Depends(get_publisher)]`.

    Raises StanzaqError if the app has opened none.
    """
    found: Publisher | None = getattr(connection.state, _STATE, None)
    if found is None:
        msg = (
            "the app has no publisher: write FastAPI(lifespan=lifespan(Publisher(…))), and let a test run the lifespan"
        )
        raise StanzaqError(msg)
    return found
