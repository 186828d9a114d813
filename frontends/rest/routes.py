"""The table of paths and methods: the application dispatches by it, and `/openapi.json` is built from it. Data only."""

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from http import HTTPStatus
from typing import Final

from broker.model.frozen import frozen
from broker.model.items.durability import Durability
from broker.model.items.hints import MOST_PRIORITY, MOST_SECONDS, USUAL_PRIORITY
from broker.model.names import ITEM_ID_BYTES
from broker.model.times import MOMENT
from frontends.rest import paths
from frontends.rest.http.fields import PREVIEW_MOST


class Body(Enum):
    """The body of a request."""

    NONE = "none"
    OPTIONS = "options"
    ANY = "any"
    BATCH = "batch"
    REDRIVE = "redrive"
    RELEASE = "release"
    CANCEL = "cancel"
    AFFILIATIONS = "affiliations"
    DECISION = "decision"
    SCHEDULE = "schedule"
    PAUSE = "pause"
    QUOTA = "quota"
    SUBSCRIPTION = "subscription"
    GIVE_BACK = "give back"
    RENEW = "renew"
    ADDRESSES = "addresses"
    THEN = "then"
    REASON = "reason"


class Shown(Enum):
    """The content of an answer."""

    PAGE = "page"
    MESSAGE = "message"
    MESSAGE_OR_END = "message, or its end"
    CONTENT = "content"
    QUEUE = "queue"
    SENT = "sent"
    RESULTS = "results"
    ACKNOWLEDGED = "results, with the messages that are received after that if the request asks for more"
    COMPLETED = "nothing, or the same if the request asks for more"
    SUBSCRIPTION = "subscription"
    SUBSCRIPTIONS = "subscriptions"
    HELD = "held"
    LOCK = "lock"
    NOTHING = "nothing"
    OVERVIEW = "overview"
    SURVEY = "survey"
    SUBSCRIBERS = "subscribers"
    AFFILIATIONS = "affiliations"
    REQUESTS = "requests"
    HISTORY = "history"
    ENDS = "ends"
    FRONTENDS = "frontends"
    REDRIVEN = "redriven"
    RELEASED = "released"
    PURGED = "purged"
    SCHEDULE = "schedule"
    SCHEDULES = "schedules"
    QUOTAS = "quotas"
    DOCUMENT = "document"
    SIGN_ON = "sign-on"
    FILE = "file"


@frozen
class Operation:
    """One method of one path; `name` is a key of `operations.OPERATIONS`."""

    name: str
    summary: str
    answers: Mapping[HTTPStatus, Shown]
    body: Body = Body.NONE
    query: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    public: bool = False
    creates: bool = False
    """Its handler judges `If-None-Match: *`: a page at this path need not be the resource."""


@frozen
class Parameter:
    """A query parameter or header: its description and JSON schema."""

    text: str
    schema: Mapping[str, object] = field(default_factory=lambda: {"type": "string"})
    required: bool = False


def _text(pattern: str) -> Mapping[str, object]:
    return {"type": "string", "pattern": f"^{pattern}$"}


_NAME: Final = {"$ref": "#/components/schemas/name"}
_POSITION: Final = "[0-9]{1,19}-[0-9]{1,19}"


def _seconds(least: int) -> Mapping[str, object]:
    return {"type": "integer", "minimum": least, "maximum": MOST_SECONDS}


PARAMETERS: Final = {
    "limit": Parameter("how many on a page", {"type": "integer", "minimum": 1, "maximum": 500, "default": 50}),
    "first": Parameter(
        "the number of the first one to show", {"type": "integer", "minimum": 0, "maximum": 999_999_999, "default": 0}
    ),
    "preview": Parameter(
        "how many bytes of the beginning of each payload to show, where it is text",
        {"type": "integer", "minimum": 0, "maximum": PREVIEW_MOST, "default": 0},
    ),
    "group_key": Parameter("show only items of this group key"),
    "header": Parameter("show only items that have this header: NAME=VALUE", _text("[^=]+=[\\s\\S]*")),
    "reason": Parameter("show only dead letters that died of this"),
    "item": Parameter("the id of the one item to show", _NAME),
    "scan": Parameter("where to continue: from the link to the next page", _text(f"(?:[0-9]{{1,4}} {_POSITION})?")),
    "after": Parameter(
        "where to continue the messages: from the link to the next page",
        _text("(?:[0-9]{1,4}-[0-9]{1,18}-[0-9]{1,18})?"),
    ),
    "past": Parameter("where to continue the schedules: from the link to the next page"),
    "below": Parameter("where to continue the tree: from the link to the next page"),
    "guid": Parameter("the client's own id of the message: repeats of it are ignored", _NAME),
    "Idempotency-Key": Parameter(
        "as guid, but a different message with the same key is refused",
        {**_text("[ -~]*[!#-~][ -~]*"), "maxLength": ITEM_ID_BYTES},
    ),
    "wait": Parameter(
        "seconds to wait for a message or its end", {"type": "integer", "minimum": 0, "maximum": 60, "default": 0}
    ),
    "next": Parameter(
        "receive up to so many more messages after the acknowledgement",
        {"type": "integer", "minimum": 0, "maximum": 200},
    ),
    "keep": Parameter(
        "whether messages that were fetched stay under their locks, to be acknowledged or returned later",
        {"type": "boolean", "default": False},
    ),
    "lock": Parameter(
        "the lock of the message: from its subscription",
        _text("[0-9]{1,4}-[0-9]{1,16}(?:-[0-9a-f]{8})?"),
        required=True,
    ),
    "owner": Parameter("a bare JID that owns queues", {"$ref": "#/components/schemas/jid"}),
    "queue": Parameter("the queue of the message, where the subscription is to several", _NAME),
    "Group-Key": Parameter(
        "messages of one key are processed in order if the queue is `stanzaq#ordered`",
        {**_text("[ -~]*"), "maxLength": ITEM_ID_BYTES},
    ),
    "Message-Delay": Parameter("seconds until the message may be delivered", _seconds(0)),
    "Message-At": Parameter(
        "when the message may be delivered, in place of a delay (RFC 3339)",
        # No format: generators of clients have dates in bodies only.
        _text(MOMENT.pattern),
    ),
    "Message-Priority": Parameter(
        "messages with a higher priority are delivered first",
        {"type": "integer", "minimum": 0, "maximum": MOST_PRIORITY, "default": USUAL_PRIORITY},
    ),
    "Message-Reply": Parameter(
        "whether the end of the message stays readable, for `stanzaq#result_seconds` of its queue",
        {"type": "boolean", "default": False},
    ),
    "Message-Keep": Parameter(
        "the same, for a message that others will name in `Message-After`", {"type": "boolean", "default": False}
    ),
    "Message-After": Parameter(
        "ids of messages, with blanks between them, that are acknowledged before this one is delivered: `ID`, or"
        " `QUEUE#ID` for another queue of the same owner; percent-encoded where a name has a blank, `#`, `%` or no ASCII",
    ),
    "Message-Regardless": Parameter(
        "whether the message is delivered however those that it waits for have ended",
        {"type": "boolean", "default": False},
    ),
    "Message-Confirm": Parameter(
        "how durable the message is before the request is answered, where `stanzaq#confirm` of its queue is `stored`",
        {"type": "string", "enum": [each.value for each in Durability]},
    ),
    "Message-TTL": Parameter("seconds after which the message is no longer delivered", _seconds(1)),
    "traceparent": Parameter("the trace that the message belongs to (W3C Trace Context)"),
    "tracestate": Parameter("vendor data of the trace (W3C Trace Context)"),
}

_LOCKED: Final = ("lock", "queue")
_OK, _CREATED = HTTPStatus.OK, HTTPStatus.CREATED
_TRACE: Final = ("traceparent", "tracestate")
_KEYED: Final = (
    "Group-Key",
    "Message-Delay",
    "Message-At",
    "Message-Priority",
    "Message-TTL",
    "Message-Reply",
    "Message-Keep",
    "Message-After",
    "Message-Regardless",
    "Message-Confirm",
    *_TRACE,
)
_ONCE: Final = ("Idempotency-Key", *_KEYED)

ROUTES: Final[Mapping[str, Mapping[str, Operation]]] = {
    paths.QUEUES: {
        "GET": Operation("list_queues", "Look at the root of the tree of queues", {_OK: Shown.PAGE}, query=("below",)),
        "POST": Operation("create_queue", "Create a queue with a made-up name", {_CREATED: Shown.QUEUE}, Body.OPTIONS),
    },
    paths.QUEUE: {
        "GET": Operation(
            "show_queue",
            "Look at the messages of a queue, without taking them, and at the tree below it",
            {_OK: Shown.PAGE},
            query=("limit", "after", "below"),
        ),
        "PUT": Operation(
            "put_queue",
            "Create a queue, unless it exists with these options",
            {_CREATED: Shown.QUEUE, _OK: Shown.QUEUE},
            Body.OPTIONS,
            creates=True,
        ),
        "PATCH": Operation("configure_queue", "Change options of a queue", {_OK: Shown.NOTHING}, Body.OPTIONS),
        "DELETE": Operation("delete_queue", "Delete a queue with everything in it", {_OK: Shown.NOTHING}),
        "POST": Operation(
            "send_message",
            "Send a message; with neither a body nor an id reserve one",
            {_CREATED: Shown.SENT, _OK: Shown.SENT},
            Body.ANY,
            query=("guid",),
            headers=_ONCE,
        ),
    },
    paths.BATCH: {
        "POST": Operation(
            "send_batch",
            "Send several messages, each with a result of its own",
            {_OK: Shown.RESULTS},
            Body.BATCH,
            headers=_TRACE,
        ),
    },
    paths.MESSAGE: {
        "GET": Operation(
            "show_message",
            "Look at a message, or at its end if it has ended and its publisher asked for that",
            {_OK: Shown.MESSAGE_OR_END},
            query=("wait",),
        ),
        "POST": Operation(
            "redeem_message", "Send the body of a reserved message", {_OK: Shown.SENT}, Body.ANY, headers=_KEYED
        ),
        "PUT": Operation("redeem_message", "The same", {_OK: Shown.SENT}, Body.ANY, headers=_KEYED),
        "DELETE": Operation(
            "delete_message", "Delete a waiting message, as its publisher or the queue's owner", {_OK: Shown.NOTHING}
        ),
    },
    paths.CONTENT: {
        "GET": Operation("show_content", "Get the body of a message, byte for byte", {_OK: Shown.CONTENT}),
    },
    paths.SUBSCRIPTIONS: {
        "GET": Operation(
            "list_subscriptions", "List your own subscriptions", {_OK: Shown.SUBSCRIPTIONS}, query=("first", "limit")
        ),
        "POST": Operation(
            "create_subscription", "Begin a lease on messages", {_CREATED: Shown.SUBSCRIPTION}, Body.SUBSCRIPTION
        ),
    },
    paths.SUBSCRIPTION: {
        "GET": Operation(
            "show_subscription",
            "Get the messages of a subscription, and renew its lease; with `text/event-stream`, receive them as they arrive",
            {_OK: Shown.HELD},
            query=("wait",),
        ),
        "DELETE": Operation(
            "delete_subscription",
            "End a subscription and return its messages, or with `keep` leave them to their locks",
            {_OK: Shown.NOTHING},
            query=("keep",),
        ),
    },
    paths.ACKNOWLEDGEMENTS: {
        "POST": Operation(
            "acknowledge_messages",
            "Acknowledge several messages, each with a result of its own",
            {_OK: Shown.ACKNOWLEDGED},
            Body.ADDRESSES,
            query=("next",),
        ),
    },
    paths.HELD: {
        "GET": Operation(
            "show_held_message", "Look at a message that a subscription holds", {_OK: Shown.MESSAGE}, query=_LOCKED
        ),
        "DELETE": Operation("acknowledge_message", "Acknowledge a message", {_OK: Shown.NOTHING}, query=_LOCKED),
    },
    paths.COMPLETE: {
        "POST": Operation(
            "complete_message",
            "Acknowledge a message with a result for its publisher",
            {_OK: Shown.COMPLETED},
            Body.ANY,
            query=(*_LOCKED, "next"),
        ),
    },
    paths.THEN: {
        "POST": Operation(
            "complete_and_publish",
            "Acknowledge a message and publish others, all or nothing",
            {_OK: Shown.NOTHING},
            Body.THEN,
            query=_LOCKED,
        ),
    },
    paths.RELEASE: {
        "POST": Operation(
            "release_message", "Give a message back", {_OK: Shown.NOTHING}, Body.GIVE_BACK, query=_LOCKED
        ),
    },
    paths.RENEW: {
        "POST": Operation("renew_message", "Renew a message's lock", {_OK: Shown.LOCK}, Body.RENEW, query=_LOCKED),
    },
    paths.DEAD_LETTER: {
        "POST": Operation(
            "bury_message", "Send a message to the dead letters", {_OK: Shown.NOTHING}, Body.REASON, query=_LOCKED
        ),
    },
    paths.OVERVIEW: {
        "GET": Operation(
            "show_overview",
            "List queues with their counts: all for administrators, else those that you are affiliated with",
            {_OK: Shown.OVERVIEW},
            query=("first", "limit"),
        ),
    },
    paths.SURVEY: {
        "GET": Operation(
            "show_survey",
            "List items as the queue's owner: their holders, attempts, and reasons of dead letters",
            {_OK: Shown.SURVEY},
            query=("item", "group_key", "header", "reason", "limit", "scan", "preview"),
        ),
    },
    paths.SUBSCRIBERS: {
        "GET": Operation("list_subscribers", "List a queue's subscribers as its owner", {_OK: Shown.SUBSCRIBERS}),
    },
    paths.AFFILIATIONS: {
        "GET": Operation("list_affiliations", "List a queue's affiliations as its owner", {_OK: Shown.AFFILIATIONS}),
        "PATCH": Operation(
            "change_affiliations",
            "Admit accounts to a queue, or remove them, as its owner",
            {_OK: Shown.NOTHING},
            Body.AFFILIATIONS,
        ),
    },
    paths.REQUESTS: {
        "GET": Operation("list_requests", "List who asks to subscribe to a queue, as its owner", {_OK: Shown.REQUESTS}),
        "POST": Operation(
            "decide_request", "Approve or refuse a request as the queue's owner", {_OK: Shown.NOTHING}, Body.DECISION
        ),
    },
    paths.ENDS: {
        "GET": Operation(
            "list_ends",
            "List how messages have ended, for as long as that is kept, as the queue's owner: the latest first",
            {_OK: Shown.ENDS},
            query=("limit", "preview"),
        ),
    },
    paths.HISTORIES: {
        "GET": Operation("show_history", "Get the counts of a queue in the last hour", {_OK: Shown.HISTORY}),
    },
    paths.REDRIVES: {
        "POST": Operation(
            "redrive",
            "Redrive dead letters, one step of them, as the queue's owner",
            {_OK: Shown.REDRIVEN},
            Body.REDRIVE,
        ),
    },
    paths.RELEASES: {
        "POST": Operation("release", "End locks by force as the queue's owner", {_OK: Shown.RELEASED}, Body.RELEASE),
    },
    paths.CANCELLATIONS: {
        "POST": Operation(
            "cancel",
            "Cancel messages, held ones too, as their publisher or the queue's owner, each with a result of its own",
            {_OK: Shown.RESULTS},
            Body.CANCEL,
        ),
    },
    paths.PURGES: {
        "POST": Operation("purge", "Delete all waiting messages, as the queue's owner", {_OK: Shown.PURGED}),
    },
    paths.SCHEDULES: {
        "GET": Operation(
            "list_schedules", "List a queue's schedules, as its owner", {_OK: Shown.SCHEDULES}, query=("limit", "past")
        ),
    },
    paths.SCHEDULE: {
        "GET": Operation("show_schedule", "Get a schedule with its message", {_OK: Shown.SCHEDULE}),
        "PUT": Operation(
            "put_schedule",
            "Send a message at certain times, as the queue's owner: by cron, or at an interval",
            {_OK: Shown.SCHEDULE},
            Body.SCHEDULE,
        ),
        "PATCH": Operation("switch_schedule", "Pause or resume a schedule", {_OK: Shown.SCHEDULE}, Body.PAUSE),
        "DELETE": Operation("delete_schedule", "Delete a schedule", {HTTPStatus.NO_CONTENT: Shown.NOTHING}),
    },
    paths.FRONTENDS: {
        "GET": Operation("list_frontends", "List the frontends of all doors, as administrator", {_OK: Shown.FRONTENDS}),
    },
    paths.QUOTAS: {
        "GET": Operation(
            "list_quotas",
            "List the quotas and what is used of them, as administrator; or those that hold for an owner; an owner sees its own",
            {_OK: Shown.QUOTAS},
            query=("owner",),
        ),
    },
    paths.QUOTA: {
        "PUT": Operation(
            "put_quota",
            "Set the quota of an owner, of all owners of a domain together, or of each owner (`default`), as administrator",
            {HTTPStatus.NO_CONTENT: Shown.NOTHING},
            Body.QUOTA,
        ),
        "DELETE": Operation("delete_quota", "Clear a quota, as administrator", {HTTPStatus.NO_CONTENT: Shown.NOTHING}),
    },
    paths.UI: {
        "GET": Operation("show_page", "Get the page for people", {_OK: Shown.FILE}, public=True),
    },
    paths.UI_FILE: {
        "GET": Operation("show_file", "Get a file of it", {_OK: Shown.FILE}, public=True),
    },
    paths.SIGN_ON: {
        "GET": Operation(
            "show_sign_on", "Get where the page signs people in; empty: here", {_OK: Shown.SIGN_ON}, public=True
        ),
    },
    paths.OPENAPI: {
        "GET": Operation("show_openapi", "Get this description", {_OK: Shown.DOCUMENT}, public=True),
    },
}
"""By path pattern and method; HEAD works as GET, and OPTIONS is answered from the table."""


EVERY: Final = ("GET", "PUT", "PATCH", "DELETE", "POST", "HEAD", "OPTIONS")
"""All methods that some path supports."""


def allowed_methods(pattern: str) -> tuple[str, ...]:
    """Return the methods of a path."""
    methods = tuple(ROUTES[pattern])
    return (*methods, *(("HEAD",) if "GET" in methods else ()), "OPTIONS")


def find_operation(pattern: str, method: str) -> Operation | None:
    """Return the operation of a method."""
    return ROUTES[pattern].get("GET" if method == "HEAD" else method)
