"""A program: fences on objects of moto's S3, over boto3 and aiobotocore. Prints what became of each try as JSON.

It runs where these are installed, and finds all other packages where its first argument says.
"""

import asyncio
import json
import site
import sys
from contextlib import AsyncExitStack
from typing import Any

site.addsitedir(sys.argv[1])

import boto3
from aiobotocore.session import get_session
from botocore.exceptions import ClientError
from moto.server import ThreadedMotoServer

from stanzaq import Fenced
from tests.fencing.jobs import make_job

BUCKET = "orders"


def body(token: int) -> str:
    """Return what a job writes."""
    return json.dumps({"by": token})


def name_of(error: Exception) -> str:
    """Return how a try has ended."""
    return f"{type(error).__name__}: {error}"


def written(client: Any, key: str) -> list[Any]:  # noqa: ANN401
    """Read an object, and what its metadata say."""
    found = client.get_object(Bucket=BUCKET, Key=key)
    return [json.loads(found["Body"].read())["by"], json.loads(found["Metadata"]["stanzaq-tokens"])]


def play_blocking(client: Any, place: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    """Write as a plain function does."""
    told: dict[str, Any] = {}

    def attempt(name: str, token: int, key: str, *, node: str = "orders", before: int = 0, text: str = "") -> None:
        try:
            with make_job(token, node).fence(client, BUCKET, key) as put:
                if before:
                    attempt("", before, key)
                put(text or body(token), ContentType="application/json", Metadata={"own": "1"})
        except (Fenced, ClientError, TypeError, ValueError) as error:
            told[name] = name_of(error)

    for token in (5, 5, 7):
        attempt("in order", token, "a")
    attempt("smaller", 6, "a")
    attempt("another node", 2, "a", node="refunds")
    told["a"] = written(client, "a")
    attempt("overtaken", 5, "b", before=6)
    told["b"] = written(client, "b")
    attempt("overtaken by an older one", 6, "c", before=5)
    told["c"] = written(client, "c")
    attempt("no token in it", 5, "d", text="{}")
    found = client.head_object(Bucket=BUCKET, Key="c")
    told["own"] = [found["ContentType"], found["Metadata"]["own"]]
    for name, other in (("bucket", client), ("service", boto3.client("sqs", **place))):
        try:
            with make_job(5).fence(other, "missing", "a") as put:
                put(body(5))
        except (ClientError, TypeError) as error:
            told[name] = name_of(error)
    return told


async def play_waiting(client: Any, reader: Any) -> dict[str, Any]:  # noqa: ANN401
    """Write as a coroutine does."""
    told: dict[str, Any] = {}
    for name, key, token, before in (
        ("first", "x", 5, 0),
        ("smaller", "x", 4, 0),
        ("overtaken", "y", 5, 6),
        ("passed", "z", 6, 5),
    ):
        try:
            async with make_job(token).fence(client, BUCKET, key) as put:
                if before:
                    async with make_job(before).fence(client, BUCKET, key) as sooner:
                        await sooner(body(before))
                await put(body(token))
        except Fenced as error:
            told[name] = name_of(error)
    return told | {key: written(reader, key) for key in ("x", "y", "z")}


async def main() -> None:
    """Play both."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    place = {"endpoint_url": f"http://{host}:{port}", "region_name": "us-east-1", "aws_access_key_id": "a"}
    place["aws_secret_access_key"] = "b"
    try:
        client = boto3.client("s3", **place)
        client.create_bucket(Bucket=BUCKET)
        blocking = play_blocking(client, place)
        async with AsyncExitStack() as stack:
            waiting = await stack.enter_async_context(get_session().create_client("s3", **place))
            told = {"boto3": blocking, "aiobotocore": await play_waiting(waiting, client)}
    finally:
        server.stop()
    print(json.dumps(told))  # noqa: T201


asyncio.run(main())
