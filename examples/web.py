r"""FastAPI and a worker: a request is answered at once with where its result will be, and the work is done later.

The worker is in the web server's process here, because its results are; it can as well be a program of its own.

$ pip install fastapi uvicorn
$ curl --user publisher@localhost:secret --request PUT http://127.0.0.1:8080/queues/pictures
$ curl --user publisher@localhost:secret --request PATCH --header 'Content-Type: application/json' \
    --data '{"affiliations": {"worker@localhost": "member"}}' http://127.0.0.1:8080/affiliations/pictures
$ STANZAQ_PASSWORD=secret uvicorn web:app --port 8000
$ curl --json '{"file": "cat.png"}' http://127.0.0.1:8000/thumbnails
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from stanzaq import Job, Publisher, Worker

AT: dict[str, Any] = {"service": "queue.localhost", "address": "127.0.0.1:5222", "tls": "disabled"}


class Picture(BaseModel):
    file: str


worker = Worker("xmpp://worker@localhost", concurrency=10, **AT)
publisher = Publisher("xmpp://publisher@localhost", **AT)
results: dict[str, str] = {}


@worker.task("pictures", timeout="1m")
async def thumbnail(job: Job[Picture]) -> None:
    results[job.id] = f"small-{job.payload.file}"


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    async with publisher:
        working = asyncio.create_task(worker.serve())
        yield
        worker.stop()
        await working


app = FastAPI(lifespan=lifespan)


@app.post("/thumbnails", status_code=202)
async def ask(picture: Picture) -> dict[str, str]:
    return {"result": f"/thumbnails/{await thumbnail.on(publisher).send(picture)}"}


@app.get("/thumbnails/{id}")
async def result(id: str) -> dict[str, str]:
    if id not in results:
        raise HTTPException(404, "not done yet")
    return {"file": results[id]}
