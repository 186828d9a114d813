"""The payload of an item that waited for others: what their handlers returned, as a header tells, or as their ends are kept.

Must not know what the handler does with it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final, get_args, get_origin

import msgspec

from stanzaq.codec import PLAIN, Codec
from stanzaq.errors import StanzaqError
from stanzaq.payloads import JSON, TEXT, Unfit, check_json
from stanzaq.transport.interface import PASSED, PASSED_ONE, Content, Delivery, Outcome

Find = Callable[[str, str], Awaitable[Outcome]]
"""Reads how an item of a node has ended."""

_NULL: Final = Content(b"null", JSON)


async def read(delivery: Delivery, wanted: Any, find: Find, codec: Codec = PLAIN) -> Content:  # noqa: ANN401  (any type)
    """Return the results that are passed to an item with the header `PASSED`, as its payload. Raises Reject if one cannot be."""
    how = delivery.headers[PASSED]
    try:
        parents = msgspec.json.decode(delivery.headers["stanzaq-parents"])
    except (KeyError, msgspec.DecodeError):
        msg = f"the item has the header {PASSED!r}, and waited for no other item"
        raise Unfit(msg) from None
    if how == PASSED_ONE:
        return await _read_result(parents[0], wanted, delivery.lock.node, find, codec)
    (each,) = get_args(wanted)[:1] if get_origin(wanted) is list else (Any,)
    results = [await _read_result(parent, each, delivery.lock.node, find, codec) for parent in parents]
    return Content(b"[%s]" % b",".join(map(_write, results)), JSON)


async def _read_result(parent: dict[str, str], wanted: Any, node: str, find: Find, codec: Codec) -> Content:  # noqa: ANN401
    """Return the result of a parent; raises Reject if it cannot be read."""
    text, node, item = parent.get("result"), parent.get("node", node), parent["item"]
    if text is not None:
        # Its type is not told.
        found = codec.decode(Content(text.encode(), ""), (node,))
        return found if found.type else replace(found, type=TEXT if wanted is str or not _is_json(text) else JSON)
    try:
        outcome = await find(node, item)
    except StanzaqError as error:
        if error.condition not in {"item-not-found", "forbidden"}:
            raise
        msg = f"the result of {item} of {node} is nothing, or too long to be passed, and this account may not read it ({error})"
        raise Unfit(msg) from error
    return outcome.result or _NULL


def _is_json(text: str) -> bool:
    try:
        check_json(text.encode())
    except ValueError:
        return False
    return True


def _write(result: Content) -> bytes:
    """Write a result as an element of a JSON array; raises Unfit."""
    if result.type == JSON:
        return result.body
    try:
        return msgspec.json.encode(result.body.decode())
    except UnicodeDecodeError:
        msg = f"a result of {result.type} cannot be passed in a list: return text, or what JSON can say"
        raise Unfit(msg) from None
