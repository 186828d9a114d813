"""Builds `/openapi.json` from the table of routes. Pure; must not know requests."""

import re
from functools import cache
from http import HTTPStatus
from typing import Any, Final

from broker.model.commands.items import MOST_PUBLISHED
from broker.model.core import Core
from broker.model.items import headers
from broker.model.items.outcomes import End
from broker.model.names import GROUP, NODE_NAME_BYTES, UNPRINTABLE
from broker.model.nodes import destinations, quotas
from broker.model.nodes.fields import DECIMAL, DIGITS, RATE, Decimal, Group, Option, Rate, Text, Weights, Whole
from broker.model.nodes.nodes import Affiliation
from broker.model.nodes.options import MAX_CREDIT, MAX_LOCK_SECONDS, OPTIONS, NodeConfig, NodeState
from broker.model.nodes.schedules import ID_BYTES, CatchUp, Overlap, ScheduleState
from broker.model.nodes.subscriptions import State
from broker.model.nodes.tree import COLLECTION, NodeType
from broker.model.roles import ROLE_NAMES
from frontends.rest import errors
from frontends.rest.admin import requests as admin_requests
from frontends.rest.formats import documents
from frontends.rest.http import negotiation
from frontends.rest.http.values import ApiRequest, Response
from frontends.rest.queues import batches, requests
from frontends.rest.routes import PARAMETERS, ROUTES, Body, Operation, Shown
from frontends.rest.schedules import requests as schedule_requests
from frontends.rest.subscriptions import requests as subscription_requests

_TEXT: Final = {"type": "string"}
_WHOLE: Final = {"type": "integer"}
_IS: Final = {"type": "boolean"}
_TIME: Final = {"type": "string", "format": "date-time"}


_LINE: Final = {"type": "string", "pattern": f"^[^{UNPRINTABLE}]*$"}
_NAME_SCHEMA: Final = {
    "type": "string",
    "minLength": 1,
    "maxLength": NODE_NAME_BYTES,
    "pattern": f"^[^{UNPRINTABLE}]+$",
}
_JID_CHAR: Final = f"[^ \"&'/:<>@{UNPRINTABLE}]"
_DOMAIN_CHAR: Final = rf"[^ .\[\]\"&'/:<>@{UNPRINTABLE}]"
_GROUP: Final = rf"^{GROUP}[^ {UNPRINTABLE}]{{1,200}}$"
_RESOURCE: Final = f"[^ {UNPRINTABLE}](?:[^{UNPRINTABLE}]{{0,1021}}[^ {UNPRINTABLE}])?"
_NAME: Final = {"$ref": "#/components/schemas/name"}
_SCHEMAS_OF: Final = {
    "name": _NAME_SCHEMA,
    "line": {**_LINE, "maxLength": subscription_requests.REASON_LONGEST},
    "jid": {
        "type": "string",
        "minLength": 1,
        "maxLength": admin_requests.JID_MOST,
        "pattern": rf"^(?:{_JID_CHAR}{{1,1023}}@)?{_DOMAIN_CHAR}(?:\.?{_DOMAIN_CHAR}){{0,340}}(?:/{_RESOURCE})?$",
    },
}
"""Schemas that are long and used in many places."""


def _object(required: dict[str, Any], **others: Any) -> dict[str, Any]:  # noqa: ANN401  (JSON Schema)
    return {"type": "object", "required": list(required), "properties": {**required, **others}}


def _closed_object(required: dict[str, Any], **others: Any) -> dict[str, Any]:  # noqa: ANN401  (JSON Schema)
    return {**_object(required, **others), "additionalProperties": False}


def _array(items: dict[str, Any], **others: Any) -> dict[str, Any]:  # noqa: ANN401  (JSON Schema)
    return {"type": "array", "items": items, **others}


_MOMENT: Final = {"type": "string", "format": "date-time"}
_STATES: Final = {"enum": ["waiting", "delayed", "dependent", "locked", "dying", "kept"]}
_PROGRESS: Final = _object({"at": _MOMENT}, share={"type": "number"}, note=_TEXT)
_LISTED: Final = _object(
    {
        "id": _TEXT,
        "href": _TEXT,
        "content_href": _TEXT,
        "state": _STATES,
        "publisher": _TEXT,
        "published": _MOMENT,
        "content_type": _TEXT,
        "bytes": _WHOLE,
        "headers": {"type": "object", "additionalProperties": _TEXT},
    },
    text=_TEXT,
    base64=_TEXT,
    progress=_PROGRESS,
    queue=_TEXT,
    group_key=_TEXT,
    token=_WHOLE,
    attempt=_WHOLE,
    max_attempts=_WHOLE,
    expires=_TIME,
    lock_seconds=_WHOLE,
    reply=_IS,
    complete=_TEXT,
    release=_TEXT,
    renew=_TEXT,
    dead_letter=_TEXT,
)
_END: Final = _object(
    {"id": _TEXT, "href": _TEXT, "state": {"enum": [*(end.value for end in End), documents.PENDING]}, "reason": _TEXT},
    result=_object({"content_type": _TEXT}, text=_TEXT, base64=_TEXT),
)
_SENT: Final = _object({"id": _TEXT, "href": _TEXT}, duplicate=_IS, expires=_MOMENT)
_ATTEMPTS: Final = _array(_object({"ended": _MOMENT, **dict.fromkeys(("outcome", "holder", "reason"), _TEXT)}))
_SEEN: Final = _object(
    {
        **dict.fromkeys(("id", "queue", "href", "content_href", "publisher", "group_key", "content_type"), _TEXT),
        "state": _STATES,
        "published": _MOMENT,
        **dict.fromkeys(("partition", "attempts", "bytes", "priority"), _WHOLE),
        "headers": {"type": "object", "additionalProperties": _TEXT},
        "held_before_by": _array(_TEXT),
        "history": _ATTEMPTS,
    },
    preview=_TEXT,
    delayed_until=_MOMENT,
    ends=_MOMENT,
    after=_array(_object(dict.fromkeys(("item", "state"), _TEXT), node=_TEXT)),
    awaited_by=_array(_object(dict.fromkeys(("node", "href"), _TEXT))),
    lock=_object({"holder": _TEXT, "since": _MOMENT, "until": _MOMENT, "frontend": _TEXT}, progress=_PROGRESS),
    died=_object(
        dict.fromkeys(("reason", "node", "item", "attempts", "holder", "publisher"), _TEXT), history=_ATTEMPTS
    ),
)
_SUBSCRIPTION: Final = _object(
    {
        "id": _TEXT,
        "href": _TEXT,
        "destinations": _array(_TEXT),
        "prefetch": _WHOLE,
        "expires": _TIME,
        "selector": _TEXT,
    }
)
_SCHEDULE: Final = _object(
    {
        **dict.fromkeys(("id", "href", "by"), _TEXT),
        **dict.fromkeys(("published", "missed", "skipped"), _WHOLE),
        "state": {"enum": [each.value for each in ScheduleState]},
        "overlap": {"enum": [each.value for each in Overlap]},
        "catchup": {"enum": [each.value for each in CatchUp]},
    },
    **dict.fromkeys(("cron", "zone", "every", "jitter", "last_item"), _TEXT),
    **dict.fromkeys(("start", "end", "next", "last", "missed_at"), _MOMENT),
    message={"type": "object"},
)
_PROBLEM: Final = _object({"type": _TEXT, "title": _TEXT, "status": _WHOLE, "detail": _TEXT})

_LIMITS: Final = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        **{name: {**_WHOLE, "minimum": 0, "maximum": quotas.MOST} for name in quotas.FIELDS[:-1]},
        "publish_rate": {**_TEXT, "pattern": f"^{RATE.pattern}$"},
    },
}

_AFFILIATIONS: Final = _object(
    {
        "affiliations": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"anyOf": [{"$ref": "#/components/schemas/jid"}, {"pattern": _GROUP}]},
            "additionalProperties": {"enum": admin_requests.AFFILIATIONS},
        }
    }
)

_RESULT: Final = _object({"status": _WHOLE}, retry_after=_WHOLE)
_ACKNOWLEDGED: Final = _array(_RESULT)
_NEXT: Final = {"messages": _array(_LISTED), "more": _IS, "refused": _RESULT}

_SCHEMAS: Final[dict[Shown, dict[str, Any]]] = {
    Shown.PAGE: _object(
        {
            "name": _TEXT,
            "href": _TEXT,
            "title": _TEXT,
            "is_queue": _IS,
            "children": _array(_object({"name": _TEXT, "href": _TEXT, "is_queue": _IS})),
            "messages": _array(_LISTED),
        },
        counts={"type": "object", "additionalProperties": _WHOLE},
        options={"type": "object", "additionalProperties": _TEXT},
        next=_TEXT,
    ),
    Shown.MESSAGE: _LISTED,
    Shown.MESSAGE_OR_END: {"anyOf": [_LISTED, _END]},
    Shown.QUEUE: _object({"name": _TEXT, "href": _TEXT}),
    Shown.SENT: _SENT,
    Shown.RESULTS: _object({"results": _ACKNOWLEDGED}),
    Shown.ACKNOWLEDGED: _object({"results": _ACKNOWLEDGED}, **_NEXT),
    Shown.COMPLETED: _object({}, results=_ACKNOWLEDGED, **_NEXT),
    Shown.SUBSCRIPTION: _SUBSCRIPTION,
    Shown.SUBSCRIPTIONS: _object({"subscriptions": _array(_SUBSCRIPTION), "total": _WHOLE}, next=_TEXT),
    Shown.HELD: _object({"href": _TEXT, "expires": _TIME, "messages": _array(_LISTED), "more": _IS, "owned": _IS}),
    Shown.LOCK: _object({"expires": _TIME}),
    Shown.NOTHING: {"type": "object"},
    Shown.OVERVIEW: _object(
        {
            "queues": _array(
                _object(
                    {
                        **dict.fromkeys(("name", "href", "title", "parent", "owner", "dead_letters"), _TEXT),
                        "type": {"enum": [each.value for each in NodeType]},
                        "state": {"enum": [each.value for each in NodeState]},
                        "standing": {"enum": [*(each.value for each in Affiliation), *ROLE_NAMES]},
                        "queueing": _IS,
                        "partitions": _WHOLE,
                        "counts": {"type": "object", "additionalProperties": _WHOLE},
                    }
                )
            ),
            "total": _WHOLE,
        },
        next=_TEXT,
    ),
    Shown.SURVEY: _object({"items": _array(_SEEN), "examined": _WHOLE}, next=_TEXT),
    Shown.SUBSCRIBERS: _object(
        {
            "subscribers": _array(
                _object(
                    {
                        **dict.fromkeys(("jid", "subid", "client"), _TEXT),
                        "state": {"enum": [each.value for each in State]},
                        **dict.fromkeys(("credit", "held"), _WHOLE),
                    }
                )
            ),
            "more": _IS,
        }
    ),
    Shown.AFFILIATIONS: _AFFILIATIONS,
    Shown.REQUESTS: _object({"requests": _array(_object({"jid": _TEXT}))}),
    Shown.ENDS: _object(
        {
            "ends": _array(
                _object(
                    {
                        **dict.fromkeys(("id", "href", "reason"), _TEXT),
                        "state": {"enum": [end.value for end in End]},
                        "expires": _MOMENT,
                    },
                    result=_object({"content_type": _TEXT, "bytes": _WHOLE}, preview=_TEXT),
                )
            )
        }
    ),
    Shown.HISTORY: _object(
        {
            "samples": _array(
                _object(
                    {
                        "at": _MOMENT,
                        **dict.fromkeys(
                            ("waiting", "in_flight", "oldest_ms", "published", "finished", "attempts"), _WHOLE
                        ),
                    }
                )
            )
        }
    ),
    Shown.FRONTENDS: _object(
        {"frontends": _array(_object({"name": _TEXT, "door": _TEXT, "heard_ms": _WHOLE, "disconnected_by": _TEXT}))}
    ),
    Shown.REDRIVEN: _object(
        {"moved": _WHOLE, "stayed": {"type": "object", "additionalProperties": _WHOLE}}, scan=_TEXT
    ),
    Shown.RELEASED: _object({"released": _WHOLE}),
    Shown.PURGED: _object({"purged": _WHOLE}),
    Shown.QUOTAS: _object({"quotas": _array(_object({"subject": _TEXT, "limits": _LIMITS, "used": _LIMITS}))}),
    Shown.SCHEDULE: _SCHEDULE,
    Shown.SCHEDULES: _object({"schedules": _array(_SCHEDULE)}, next=_TEXT),
    Shown.DOCUMENT: {"type": "object"},
    Shown.SIGN_ON: {
        "type": "object",
        "properties": {each: {"type": "string"} for each in ("issuer", "client", "scope")},
        "additionalProperties": False,
    },
}

_SWITCH: Final = {"anyOf": [_IS, {**_WHOLE, "minimum": 0, "maximum": 1}, {"enum": ["0", "1", "true", "false"]}]}


def _value(option: Option) -> dict[str, Any]:
    """Return the schema of an option's value. Constraints between options have no schema."""
    match option.read:
        case Whole(low, high, words):
            digits = {**_TEXT, "pattern": "^(?:" + "|".join((f"[0-9]{{1,{DIGITS}}}", *words)) + ")$"}
            return {"anyOf": [{**_WHOLE, "minimum": low, "maximum": high}, digits]}
        case Decimal(low, high):
            digits = {**_TEXT, "pattern": f"^{DECIMAL.pattern}$"}
            return {"anyOf": [{"type": "number", "minimum": low, "maximum": high}, digits]}
        case Rate():
            return {**_TEXT, "pattern": f"^(?:{RATE.pattern})?$"}
        case Text(limit) | Weights(_, limit):
            return {**_TEXT, "maxLength": limit}
    if option.choices:
        return {**_TEXT, "enum": list(option.choices)}
    return _SWITCH if option.kind == "boolean" else _TEXT


def _default(option: Option) -> dict[str, Any]:
    """Return the default of an option, unless a setting of the service or the node's name decides it."""
    decided = option.attribute in {"access_model", "dead_letter_node"}
    return {} if decided else {"default": option.show(NodeConfig())}


_OPTIONS_BODY: Final = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "options": {
            "type": "object",
            "additionalProperties": False,
            "x-groups": [each.value for each in Group],
            "properties": {
                option.name: {
                    "description": option.label,
                    **_value(option),
                    **_default(option),
                    # For clients that build forms: the kind of field (XEP-0004), its group, and the type of node that has it.
                    "x-kind": option.kind,
                    "x-group": option.group.value,
                    **({"x-node-type": option.on.value} if option.on else {}),
                }
                for option in OPTIONS
            }
            | {COLLECTION: {"description": "Its parent collection, if any", **_TEXT}},
        }
    },
}
_EACH: Final[dict[str, Any]] = {
    "content_type": _TEXT,
    "group_key": _TEXT,
    "headers": {"type": "object", "additionalProperties": _TEXT},
    # Each message's own result reports values out of range.
    **dict.fromkeys(requests.HINTS.keys() - requests.TEXTS - requests.FLAGS, _WHOLE),
}
"""Fields of a message that the many messages of a schedule have in common."""

_PART: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        **_EACH,
        "guid": _TEXT,
        **dict.fromkeys(requests.TEXTS, _TEXT),
        **dict.fromkeys(requests.FLAGS, _IS),
    },
}


_CONTENTS: Final[dict[str, Any]] = {
    "json": {},
    "text": _TEXT,
    "base64": {"type": "string", "contentEncoding": "base64"},
}
"""The fields of a message of which it has one."""


@cache
def document() -> dict[str, Any]:
    """Return the complete description."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "stanzaq",
            "version": "1",
            "description": "Work queues: the RESTful Queue. A queue's name is one percent-encoded segment, or a path.",
        },
        "paths": {
            pattern: {
                **_parameters(pattern),
                **{method.lower(): _operation(method, each) for method, each in methods.items()},
            }
            for pattern, methods in ROUTES.items()
        },
        "components": {
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic"},
                "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            },
            "schemas": {"problem": _PROBLEM, **_SCHEMAS_OF},
        },
    }


@cache
def answer() -> Response:
    """Return it as an answer."""
    return Response(HTTPStatus.OK, documents.write_json(document()), negotiation.JSON)


async def show_openapi(_core: Core, _request: ApiRequest) -> Response:
    """Serve the description."""
    return answer()


def _parameters(pattern: str) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", pattern)
    schemas = {"queue": _NAME, "message": _NAME, "schedule": {**_NAME_SCHEMA, "maxLength": ID_BYTES}}
    found = [
        {"name": name, "in": "path", "required": True, "schema": schemas.get(name, {**_TEXT, "minLength": 1})}
        for name in names
    ]
    return {"parameters": found} if found else {}


def _operation(method: str, operation: Operation) -> dict[str, Any]:
    given = [("query", name) for name in operation.query] + [("header", name) for name in operation.headers]
    said: dict[str, Any] = {
        "operationId": operation.name if method != "PUT" or "redeem" not in operation.name else f"{operation.name}_put",
        "summary": operation.summary,
        "responses": {
            **{str(status.value): _answer(shown) for status, shown in operation.answers.items()},
            "default": {
                "description": "a refusal",
                "content": {errors.MEDIA: {"schema": {"$ref": "#/components/schemas/problem"}}},
            },
        },
    }
    if not operation.public:
        said["security"] = [{"password": []}, {"token": []}]
    if given:
        said["parameters"] = [
            {
                "name": name,
                "in": where,
                "description": PARAMETERS[name].text,
                "schema": dict(PARAMETERS[name].schema),
                **({"required": True} if PARAMETERS[name].required else {}),
            }
            for where, name in given
        ]
    if operation.body is not Body.NONE:
        said["requestBody"] = _BODIES[operation.body]
    return said


def _form(required: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:  # noqa: ANN401  (JSON Schema)
    """Return a body with these fields, as JSON or a form."""
    schema = {"type": "object", "additionalProperties": False, "properties": fields, "required": list(required)}
    return {"content": {kind: {"schema": schema} for kind in (negotiation.JSON, subscription_requests.FORM)}}


def _whole_between(least: int, most: int, default: int) -> dict[str, Any]:
    return {**_WHOLE, "minimum": least, "maximum": most, "default": default}


_REASON: Final = {"$ref": "#/components/schemas/line"}
_PLACE: Final = "[0-9]{1,4} [0-9]{1,19}-[0-9]{1,19}"
_SCAN: Final = {
    **_TEXT,
    "maxLength": admin_requests.SCAN_MOST,
    "pattern": f"^(?:(?:{admin_requests.ELSEWHERE})?[0-9]{{1,19}}-(?:[0-9]{{1,19}}|18446744073709551615) {_PLACE})?$",
}


def _names(most: int) -> dict[str, Any]:
    return _array(_NAME, minItems=1, maxItems=most)


_CHOSEN: Final = {
    "type": "object",
    "minProperties": 1,
    "maxProperties": headers.MOST,
    "additionalProperties": {**_TEXT, "maxLength": admin_requests.REASON_MOST},
}
_BODIES: Final[dict[Body, dict[str, Any]]] = {
    Body.SUBSCRIPTION: {
        "required": True,
        **_form(
            ("destinations",),
            destinations={"anyOf": [_NAME, _array(_NAME, minItems=1, maxItems=destinations.MOST)]},
            prefetch=_whole_between(1, MAX_CREDIT, subscription_requests.PREFETCH),
            lease=_whole_between(
                subscription_requests.LEASE_LEAST, subscription_requests.LEASE_MOST, subscription_requests.LEASE_SECONDS
            ),
            selector=_TEXT,
        ),
    },
    Body.GIVE_BACK: _form(delay={**_WHOLE, "minimum": 0, "maximum": MAX_LOCK_SECONDS}, reason=_REASON, untried=_IS),
    Body.REASON: _form(reason=_REASON),
    Body.RENEW: _form(
        seconds={**_WHOLE, "minimum": 1, "maximum": MAX_LOCK_SECONDS},
        progress={"type": "number", "minimum": 0, "maximum": 1},
        note={"$ref": "#/components/schemas/line"},
        begun=_IS,
    ),
    Body.ADDRESSES: {
        "required": True,
        "content": {negotiation.JSON: {"schema": _array(_TEXT, minItems=1, maxItems=subscription_requests.TOGETHER)}},
    },
    Body.THEN: {
        "required": True,
        "description": "The messages, each as in a batch and with its queue; and a result for the publisher.",
        "content": {
            negotiation.JSON: {
                "schema": _closed_object(
                    {
                        "then": _array(
                            {
                                **_PART,
                                "required": ["queue"],
                                "properties": {**_PART["properties"], "queue": _NAME, **_CONTENTS},
                            },
                            minItems=1,
                            maxItems=MOST_PUBLISHED,
                        )
                    },
                    result={
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {**_CONTENTS, "content_type": _TEXT},
                    },
                )
            }
        },
    },
    Body.REDRIVE: {
        "required": True,
        "content": {
            negotiation.JSON: {
                "schema": {
                    "oneOf": [
                        _closed_object({"items": _names(admin_requests.REDRIVEN_MOST)}),
                        _closed_object(
                            {"reason": {**_TEXT, "minLength": 1, "maxLength": admin_requests.REASON_MOST}}, scan=_SCAN
                        ),
                        _closed_object({"headers": _CHOSEN}, scan=_SCAN),
                        _closed_object(
                            {
                                "reason": {**_TEXT, "minLength": 1, "maxLength": admin_requests.REASON_MOST},
                                "headers": _CHOSEN,
                            },
                            scan=_SCAN,
                        ),
                        _closed_object({"all": {"const": True}}, scan=_SCAN),
                    ]
                }
            }
        },
    },
    Body.RELEASE: {
        "required": True,
        "content": {
            negotiation.JSON: {
                "schema": {
                    "oneOf": [
                        _closed_object({"items": _names(admin_requests.RELEASED_MOST)}),
                        _closed_object({"holder": {"$ref": "#/components/schemas/jid"}}),
                    ]
                }
            }
        },
    },
    Body.CANCEL: {
        "required": True,
        "content": {negotiation.JSON: {"schema": _closed_object({"items": _names(admin_requests.CANCELLED_MOST)})}},
    },
    Body.AFFILIATIONS: {
        "required": True,
        "description": "The affiliation of each named JID; the others keep theirs. With `none` a JID has none.",
        "content": {negotiation.JSON: {"schema": _AFFILIATIONS | {"additionalProperties": False}}},
    },
    Body.DECISION: {
        "required": True,
        "content": {
            negotiation.JSON: {"schema": _closed_object({"jid": {"$ref": "#/components/schemas/jid"}, "allow": _IS})}
        },
    },
    Body.SCHEDULE: {
        "required": True,
        "description": "When, by cron or every, and a message as in a batch: json, text or base64, and more.",
        "content": {
            negotiation.JSON: {
                "schema": {
                    "type": "object",
                    "properties": {**dict.fromkeys(schedule_requests.SAID, _TEXT), **_EACH},
                }
            }
        },
    },
    Body.QUOTA: {
        "required": True,
        "content": {negotiation.JSON: {"schema": {**_LIMITS, "minProperties": 1}}},
    },
    Body.PAUSE: {
        "required": True,
        "content": {negotiation.JSON: {"schema": _closed_object({"paused": _IS})}},
    },
    Body.OPTIONS: {"content": {negotiation.JSON: {"schema": _OPTIONS_BODY}}},
    # The second is for generators of clients: they leave out an operation whose media types they do not know.
    Body.ANY: {
        "content": {"*/*": {"schema": {}}, "application/octet-stream": {"schema": {**_TEXT, "format": "binary"}}}
    },
    Body.BATCH: {
        # A schema cannot describe the parts.
        "description": "An array of messages; or `multipart/mixed` (RFC 2046 §5.1), whose parts are messages, each with the"
        " headers that it would have alone.",
        "required": True,
        "content": {
            negotiation.JSON: {
                "schema": _array(
                    {
                        "anyOf": [
                            {
                                **_PART,
                                "required": [name],
                                "properties": {**_PART["properties"], name: schema},
                            }
                            for name, schema in _CONTENTS.items()
                        ]
                        + [{"description": "any other value: its result says what is wrong"}]
                    },
                    minItems=1,
                    maxItems=batches.MOST,
                )
            },
        },
    },
}


def _answer(shown: Shown) -> dict[str, Any]:
    if shown is Shown.CONTENT:
        return {"description": "the body of the message", "content": {"*/*": {"schema": {}}}}
    if shown is Shown.FILE:
        return {"description": "a file", "content": {"*/*": {"schema": {}}}}
    content: dict[str, Any] = {negotiation.JSON: {"schema": _SCHEMAS[shown]}}
    if shown in {Shown.PAGE, Shown.MESSAGE, Shown.MESSAGE_OR_END, Shown.HELD}:
        content[negotiation.ATOM] = {"schema": _TEXT}
    if shown is Shown.HELD:
        content[negotiation.EVENTS] = {"schema": _TEXT}
    return {"description": shown.value, "content": content}
