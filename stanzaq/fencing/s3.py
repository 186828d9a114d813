"""Fences in S3, over clients of boto3 and aiobotocore. Knows conditional writes; must not know what is written.

An object is its own fence: its metadata have the tokens of its writers, and it is replaced only as it was read. S3 tells a change
by the ETag, which may be a digest of the content alone. So each body must say its token: a newer job never writes an equal one.
"""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from botocore.exceptions import ClientError

from stanzaq.fencing.mark import Mark

_TOKENS: Final = "stanzaq-tokens"
"""The name in the metadata: the last token of each node, as JSON."""

_CONFLICT: Final = 409
_FAILED: Final = 412
_MISSING: Final = 404


class _Object:
    """An object as it was last read. The name of its mark is the bucket's."""

    def __init__(self, client: Any, mark: Mark) -> None:  # noqa: ANN401
        """Know nothing of it. Raises TypeError for a client of another service."""
        if (service := client.meta.service_model.service_name) != "s3":
            msg = f"fences are in S3, and this is a client of {service}"
            raise TypeError(msg)
        self._mark = mark
        self.place = {"Bucket": mark.name, "Key": mark.key}
        self._condition: dict[str, str] = {}
        self._tokens: dict[str, int] = {}

    def read(self, head: Mapping[str, Any] | ClientError) -> None:
        """Learn what it is now. Raises Fenced for a larger token, and what S3 has refused."""
        if isinstance(head, ClientError):
            if _status(head) != _MISSING:
                raise head
            self._condition, self._tokens = {"IfNoneMatch": "*"}, {}
            return
        self._condition = {"IfMatch": head["ETag"]}
        self._tokens = json.loads(head["Metadata"].get(_TOKENS, "{}"))
        if self._tokens.get(self._mark.node, 0) > self._mark.token:
            raise self._mark.refusal()

    def replace(self, body: str | bytes, more: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that replace what was read. Raises ValueError if the body does not say the token."""
        content = body.encode() if isinstance(body, str) else body
        if str(self._mark.token).encode() not in content:
            msg = (
                "the body does not have job.token in it: S3 could not tell it from an equal one that another job writes"
            )
            raise ValueError(msg)
        tokens = json.dumps({**self._tokens, self._mark.node: self._mark.token})
        metadata = {**more.get("Metadata", {}), _TOKENS: tokens}
        return {**more, **self.place, **self._condition, "Body": content, "Metadata": metadata}


@contextmanager
def guard(client: Any, mark: Mark) -> Iterator[Any]:  # noqa: ANN401  (boto3 makes its classes as it runs)
    """Guard an object: the block gets `put(body, **more)`, as `put_object` of a client of boto3."""
    known = _Object(client, mark)

    def look() -> None:
        try:
            head = client.head_object(**known.place)
        except ClientError as error:
            head = error
        known.read(head)

    def put(body: str | bytes, **more: Any) -> Any:  # noqa: ANN401
        while True:
            try:
                return client.put_object(**known.replace(body, more))
            except ClientError as error:
                _check_overtaken(error)
            look()

    look()
    yield put


@asynccontextmanager
async def guard_async(client: Any, mark: Mark) -> AsyncIterator[Any]:  # noqa: ANN401
    """Guard an object: the block gets `await put(body, **more)`, as `put_object` of a client of aiobotocore."""
    known = _Object(client, mark)

    async def look() -> None:
        try:
            head = await client.head_object(**known.place)
        except ClientError as error:
            head = error
        known.read(head)

    async def put(body: str | bytes, **more: Any) -> Any:  # noqa: ANN401
        while True:
            try:
                return await client.put_object(**known.replace(body, more))
            except ClientError as error:
                _check_overtaken(error)
            await look()

    await look()
    yield put


def _status(error: ClientError) -> int:
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


def _check_overtaken(error: ClientError) -> None:
    """Raise what S3 has refused, unless somebody else has written or deleted the object meanwhile."""
    if _status(error) not in (_CONFLICT, _FAILED) and error.response["Error"]["Code"] != "NoSuchKey":
        raise error
