"""FastAPI: a request is answered at once with where its result will be, and any process of the web server can tell it.

$ pip install fastapi uvicorn
$ STANZAQ_PASSWORD=secret stanzaq worker web:worker
$ STANZAQ_PASSWORD=secret uvicorn web:app --port 8000 --workers 2
$ curl --json '{"file": "cat.png"}' http://127.0.0.1:8000/thumbnails

The twin, with taskiq over Redis Streams, does not promise as much. What a lost worker had begun comes back after ten minutes, and
so does what runs for longer, to a second worker. A task that kills its worker is counted nowhere, and comes back for ever. One
that raises is sent again at once, without a delay, unless a scheduler runs beside the workers.
"""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from stanzaq import Job, Publisher, Retry, StanzaqError, Worker
from stanzaq.fastapi import lifespan

AT: dict[str, Any] = {"service": "queue.localhost", "address": "127.0.0.1:5222", "tls": "disabled"}
worker = Worker("xmpp://worker@localhost", concurrency=10, create="if-missing", **AT)
publisher = Publisher("xmpp://worker@localhost", **AT)


class Picture(BaseModel):
    file: str


@worker.task("uploads", retry=Retry(attempts=3), timeout="1m")
async def thumbnail(job: Job[Picture]) -> str:
    return f"small-{job.payload.file}"


app = FastAPI(lifespan=lifespan(publisher))


@app.post("/thumbnails", status_code=202)
async def ask(picture: Picture) -> dict[str, str]:
    return {"result": f"/thumbnails/{await thumbnail.on(publisher).send(picture, keep=True)}"}


@app.get("/thumbnails/{id}")
async def result(id: str) -> dict[str, str]:
    try:
        return {"state": "done", "file": await publisher.result("uploads", id)}
    except StanzaqError as error:
        return {"state": "waiting" if error.condition == "item-not-found" else error.condition}
