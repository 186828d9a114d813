"""Payloads as Python values: reads them as the type of a handler's annotation, and writes a publisher's. Pure.

msgspec reads and writes JSON: it checks dataclasses, TypedDicts and containers against their annotations, and tells where one
does not match. Pydantic models are read and written by their own methods. Both write some values that JSON cannot say as others,
so these are refused before.
"""

import copy
import functools
import inspect
import math
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, ClassVar, Final, get_args, get_origin
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

import msgspec

from stanzaq.codec import JOSE
from stanzaq.job import Job
from stanzaq.retry import Reject
from stanzaq.transport.interface import Content

JSON: Final = "application/json"
XML: Final = "application/xml"
TEXT: Final = "text/plain;charset=utf-8"
BYTES: Final = "application/octet-stream"

_PLAIN: Final = frozenset({str, int, bool, type(None)})
_TEXT: Final = frozenset({str})
_ARRAYS: Final = (list, tuple, set, frozenset)
_BYTES: Final = (bytes, bytearray, memoryview)

_read_raw: Final = msgspec.json.Decoder(msgspec.Raw).decode
"""Reads the grammar of JSON and makes no values: numbers may be long."""


class Unfit(Reject):
    """A payload does not match the handler's annotation; the text tells where."""


def payload_type(handler: Callable[..., Any], name: str) -> Any:  # noqa: ANN401  (any type may be asked for)
    """Return the payload type of a handler's parameter: `T` of `Job[T]` or `list[Job[T]]`, Any without an annotation.

    Raises TypeError, which says the handler's `name` and what to write.
    """
    hint = read_parameter(handler, name)
    inner = get_args(hint)[0] if get_origin(hint) is list else hint
    if inner is Any or inner is Job or inner is list:
        return Any
    if get_origin(inner) is not Job:
        msg = f"{name} takes {hint!r}: annotate its parameter as Job[…], or as list[Job[…]] for batches"
        raise TypeError(msg)
    (wanted_type,) = get_args(inner)
    return Any if wanted_type is object else wanted_type


def read_parameter(handler: Callable[..., Any], name: str) -> Any:  # noqa: ANN401
    """Return the annotation of a handler's parameter, Any without one; raises TypeError."""
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except ValueError as error:
        msg = f"{name} has no readable parameters: write a function that takes a job"
        raise TypeError(msg) from error
    function: Any = handler
    while isinstance(function, functools.partial):
        function = function.func
    function = function if inspect.isroutine(function) else type(function).__call__
    try:
        hints = typing.get_type_hints(function)
    except Exception as error:
        msg = f"{name} has an annotation that cannot be read ({error}): import or define its names at the top of its module"
        raise TypeError(msg) from error
    wanted = [each for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
    if len(wanted) != 1 or wanted[0].kind is inspect.Parameter.KEYWORD_ONLY:
        more = "the others are Annotated[…, Depends(…)], with pip install 'stanzaq[depends]'"
        msg = f"{name} takes {len(wanted)} arguments: a handler takes one, the job{f'; {more}' if wanted[1:] else ''}"
        raise TypeError(msg)
    return hints.get(wanted[0].name, Any)


def result_type(handler: Callable[..., Any]) -> Any:  # noqa: ANN401
    """Return the type that a handler's annotation says it returns, once it has been awaited; Any if it says none."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    function = handler if inspect.isroutine(handler) else type(handler).__call__
    try:
        hint = typing.get_type_hints(function).get("return", Any)
    except Exception:  # noqa: BLE001  (of the return alone: the parameter's has been read)
        return Any
    return (
        get_args(hint)[-1] if isinstance(get_origin(hint), type) and issubclass(get_origin(hint), Awaitable) else hint
    )


def decode(content: Content, wanted: Any) -> Any:  # noqa: ANN401
    """Read a payload as a type; raises Unfit."""
    if wanted is bytes:
        return content.body
    if _kind(content) == JOSE:
        msg = "the payload is encrypted, and this program has no key: give the Worker or the Publisher a codec"
        raise Unfit(msg)
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
    """Write a value as a payload; raises TypeError or ValueError if a reader could not get it back."""
    match payload:
        case Content():
            if _kind(payload) == JSON:
                _require_json(msgspec.Raw(payload.body))
            return payload
        case bytes() | bytearray() | memoryview():
            return Content(bytes(payload), BYTES)
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
            _require_json(payload)
            return Content(msgspec.json.encode(payload, enc_hook=_to_plain), JSON)


def check_json(body: bytes) -> None:
    """Check that bytes are one JSON text in UTF-8, as the service does; a ValueError says what is wrong."""
    try:
        _read_raw(body)
        if not body.isascii():
            # The grammar alone lets any bytes pass in a string.
            body.decode()
    except RecursionError:
        msg = "it is nested too deeply"
        raise ValueError(msg) from None


def _require_json(value: Any) -> None:  # noqa: ANN401
    """Check that JSON can say a value; raises TypeError or ValueError, which tell where it cannot."""
    try:
        _check(value)
    except _UnsayableError as fault:
        where = f"'s {fault.path}" if fault.path else ""
        msg = f"the payload{where} {fault}"
        raise fault.kind(msg) from None
    except RecursionError:
        msg = "the payload contains itself, or is nested too deeply"
        raise ValueError(msg) from None


class _UnsayableError(Exception):
    """JSON cannot say a value; `path` is where it is in the payload."""

    def __init__(self, kind: type[Exception], text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.path = ""


def _check(value: Any, *, typed: bool = False) -> None:  # noqa: ANN401
    """Check that JSON can say a value; bytes only if they are `typed`, for a reader then knows that their text is base64."""
    if isinstance(value, dict):
        if not _TEXT.issuperset(map(type, value)):
            _check_keys(value, typed=typed)
        if not _PLAIN.issuperset(map(type, value.values())):
            _check_each(value.items(), "[{!r}]", typed=typed)
    elif isinstance(value, _ARRAYS) and not _fields(type(value)):
        if not _PLAIN.issuperset(map(type, value)):
            _check_each(enumerate(value), "[{}]", typed=typed)
    else:
        _check_one(value, typed=typed)


def _check_one(value: Any, *, typed: bool) -> None:  # noqa: ANN401
    match value:
        case float():
            if not math.isfinite(value):
                told = f"is {value}: JSON has no such number, so send None or a text"
                raise _UnsayableError(ValueError, told)
        case bytes() | bytearray() | memoryview():
            if not typed:
                told = "is bytes, which JSON has not: send them alone, as base64, or in a class whose annotation says bytes"
                raise _UnsayableError(TypeError, told)
        case Enum():
            _check(value.value, typed=typed)
        case msgspec.Raw():
            try:
                check_json(bytes(value))
            except ValueError as fault:
                told = f"is not JSON: {fault}"
                raise _UnsayableError(ValueError, told) from None
        case _:
            _check_fields(value, _fields(value.__class__))


def _check_each(values: Iterable[tuple[Any, Any]], form: str, *, typed: bool) -> None:
    for place, each in values:
        kind = type(each)
        if not (kind in _PLAIN or (kind is float and math.isfinite(each))):
            try:
                _check(each, typed=typed)
            except _UnsayableError as fault:
                fault.path = form.format(place) + fault.path
                raise


def _check_keys(value: Mapping[Any, Any], *, typed: bool) -> None:
    for key in value:
        try:
            if type(key) not in _PLAIN:
                _check(key, typed=typed)
        except _UnsayableError as fault:
            told = f"has a key that {fault}"
            raise _UnsayableError(fault.kind, told) from None
    if len(msgspec.to_builtins(dict.fromkeys(value), str_keys=True)) < len(value):
        told = "has keys that are the same in JSON, where each is a text: rename one of them"
        raise _UnsayableError(ValueError, told)


def _check_fields(value: object, fields: Mapping[str, bool]) -> None:
    for name, typed in fields.items():
        _check_each(((name, getattr(value, name, None)),), ".{}", typed=typed)
    more = getattr(value, "__pydantic_extra__", None)
    if more:
        _check_each(more.items(), ".{}", typed=False)


@lru_cache(maxsize=1_000)
def _fields(kind: type) -> Mapping[str, bool]:
    """Return the fields of a class, each with whether its annotation says bytes; none of a class without fields."""
    if not any(hasattr(kind, mark) for mark in _CLASSES):
        return {}
    try:
        hints = typing.get_type_hints(kind)
    except NameError:
        # Of a class inside a function, say.
        hints = {name: hint for each in reversed(kind.__mro__) for name, hint in inspect.get_annotations(each).items()}
    return {name: _says_bytes(hint) for name, hint in hints.items() if get_origin(hint) is not ClassVar}


_CLASSES: Final = (
    *("__dataclass_fields__", "__struct_fields__", "__attrs_attrs__", "__pydantic_decorators__"),
    # Of a NamedTuple.
    "_field_defaults",
)


def _says_bytes(hint: Any) -> bool:  # noqa: ANN401
    # A NewType, and a type with a name of its own.
    hint = getattr(hint, "__supertype__", getattr(hint, "__value__", hint))
    if isinstance(hint, str):
        return any(each.__name__ in hint for each in _BYTES)
    return hint in _BYTES or any(map(_says_bytes, get_args(hint)))


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
        plain = value.model_dump(mode="json")
        # What its own functions have made.
        _require_json(plain)
        return plain
    msg = f"a {type(value).__name__} is no payload: give bytes, text, an Element, or what JSON can say"
    raise TypeError(msg)
