"""Payloads as Python values: reads them as the type of a handler's annotation, and writes a publisher's. Pure.

msgspec reads and writes JSON: it checks dataclasses, TypedDicts and containers against their annotations, and tells where one
does not match. Pydantic models are read and written by their own methods.
"""

import copy
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, Final, get_args, get_origin
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

import msgspec

from stanzaq.job import Job
from stanzaq.retry import Reject
from stanzaq.transport import Content

JSON: Final = "application/json"
XML: Final = "application/xml"
TEXT: Final = "text/plain;charset=utf-8"
BYTES: Final = "application/octet-stream"


class Unfit(Reject):
    """A payload does not match the handler's annotation; the text tells where."""


def payload_type(handler: Callable[..., Any], name: str) -> Any:  # noqa: ANN401  (any type may be asked for)
    """Return the payload type of a handler's parameter: `T` of `Job[T]`, Any without an annotation.

    Raises TypeError, which says the handler's `name` and what to write.
    """
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except ValueError as error:
        msg = f"{name} has no readable parameters: write a function that takes a job"
        raise TypeError(msg) from error
    wanted = [each for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
    if len(wanted) != 1 or wanted[0].kind is inspect.Parameter.KEYWORD_ONLY:
        msg = f"{name} takes {len(wanted)} arguments: a handler takes one, the job"
        raise TypeError(msg)
    function: Any = handler
    while isinstance(function, functools.partial):
        function = function.func
    function = function if inspect.isroutine(function) else type(function).__call__
    try:
        hint = typing.get_type_hints(function).get(wanted[0].name, Any)
    except Exception as error:
        msg = f"{name} has an annotation that cannot be read ({error}): import or define its names at the top of its module"
        raise TypeError(msg) from error
    if hint is Any or hint is Job:
        return Any
    if get_origin(hint) is not Job:
        msg = f"{name} takes {hint!r}: annotate its parameter as Job[…]"
        raise TypeError(msg)
    (wanted_type,) = get_args(hint)
    return Any if wanted_type is object else wanted_type


def decode(content: Content, wanted: Any) -> Any:  # noqa: ANN401
    """Read a payload as a type; raises Unfit."""
    if wanted is bytes:
        return content.body
    try:
        if wanted is Any:
            return _decode_by_type(content)
        if wanted is Element:
            return ET.fromstring(content.body)  # noqa: S314  (the XMPP server has taken it for a stanza, or the service for XML)
        if wanted is str and _kind(content) != JSON:
            return content.body.decode()
        if _is_pydantic(wanted):
            return wanted.model_validate_json(content.body)
        return msgspec.json.decode(content.body, type=wanted)
    except (ET.ParseError, msgspec.MsgspecError, ValueError) as error:
        name = wanted.__name__ if inspect.isclass(wanted) else str(wanted)
        msg = f"the payload ({content.type}) is no {name}: {error}"
        raise Unfit(msg) from error


def encode(payload: Any) -> Content:  # noqa: ANN401
    """Write a value as a payload; raises TypeError if that is impossible."""
    match payload:
        case Content():
            return payload
        case bytes():
            return Content(payload, BYTES)
        case str():
            return Content(payload.encode(), TEXT)
        case Element():
            if not all(isinstance(each.tag, str) for each in payload.iter()):
                msg = "an element with a comment or a processing instruction: XMPP forbids them, so remove it"
                raise TypeError(msg)
            alone = copy.copy(payload)
            # What comes after an element is its parent's.
            alone.tail = None
            body = ET.tostring(alone, "utf-8", xml_declaration=False)
            try:
                ET.fromstring(body)  # noqa: S314  (it is our own)
            except ET.ParseError as error:
                # It would end the stream of whoever sends it, and each further one.
                msg = f"an element that is no XML ({error}): correct its names and texts"
                raise TypeError(msg) from None
            return Content(body, XML)
        case _:
            return Content(msgspec.json.encode(payload, enc_hook=_to_plain), JSON)


def _decode_by_type(content: Content) -> Any:  # noqa: ANN401
    """Read a payload by its media type: JSON, an element, text, or bytes unchanged."""
    kind = _kind(content)
    if kind == JSON:
        return msgspec.json.decode(content.body)
    if kind == XML:
        return ET.fromstring(content.body)  # noqa: S314
    return content.body.decode() if kind.startswith("text/") else content.body


def _kind(content: Content) -> str:
    return content.type.partition(";")[0].strip().lower()


def _is_pydantic(wanted: Any) -> bool:  # noqa: ANN401
    return inspect.isclass(wanted) and hasattr(wanted, "model_validate_json")


def _to_plain(value: Any) -> Any:  # noqa: ANN401
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    msg = f"a {type(value).__name__} is no payload: give bytes, text, an Element, or what JSON can say"
    raise TypeError(msg)
