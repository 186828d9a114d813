"""The twin of examples/web.py, with taskiq.

$ taskiq worker web:broker
$ uvicorn web:app --port 8000 --workers 2
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from pydantic import BaseModel
from taskiq import SimpleRetryMiddleware
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

results = RedisAsyncResultBackend("redis://localhost", result_ex_time=3_600)
broker = RedisStreamBroker("redis://localhost").with_result_backend(results)
broker.add_middlewares(SimpleRetryMiddleware(default_retry_count=3))


class Picture(BaseModel):
    file: str


@broker.task(task_name="thumbnail", retry_on_error=True, timeout=60)
async def thumbnail(picture: Picture) -> str:
    return f"small-{picture.file}"


@asynccontextmanager
async def connect(_app: FastAPI) -> AsyncIterator[None]:
    await broker.startup()
    yield
    await broker.shutdown()


app = FastAPI(lifespan=connect)


@app.post("/thumbnails", status_code=202)
async def ask(picture: Picture) -> dict[str, str]:
    task = await thumbnail.kiq(picture)
    return {"result": f"/thumbnails/{task.task_id}"}


@app.get("/thumbnails/{id}")
async def result(id: str) -> dict[str, str]:
    if not await results.is_result_ready(id):
        return {"state": "waiting"}
    found = await results.get_result(id)
    return {"state": "failed"} if found.is_err else {"state": "done", "file": found.return_value}
