"""THE table of Redis keys: name, type, holder, meaning and bound of each.

All names of keys come from here; operations receive keys and never build one. A process serves one service, whose keys begin
with one prefix. Must not know how a key is used.
"""

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final
from urllib.parse import unquote

from broker.model.names import Partition


@dataclass(frozen=True, slots=True)
class Key:
    """One row of the table; `holder` is `partition`, `node`, `jid`, `process`, `service` or `qos` and decides the hash tag."""

    name: str
    type: str
    holder: str
    meaning: str
    bound: str


TABLE: Final = (
    Key(
        "meta",
        "hash",
        "partition",
        "revision, options that scripts read, cursor, tail, token, what is kept; session/FRONTEND, of one that has lost replies",
        "three dozen fields, live frontends",
    ),
    Key(
        "log",
        "stream",
        "partition",
        "every payload, once: by, body, id, key, at, hints",
        "max_items and what retention keeps",
    ),
    Key("index", "hash", "partition", "publisher's item id -> position", "items with ids of their publishers"),
    Key(
        "replaced",
        "hash",
        "partition",
        "position -> log id of the version that replaced a waiting item",
        "waiting items",
    ),
    Key(
        "successors",
        "hash",
        "partition",
        "position -> log id of the version that waits for a lock to end",
        "locked items",
    ),
    Key(
        "ready",
        "zset",
        "partition",
        "returned positions, and those in a fair order, with negative scores; score is their place in the queue",
        "waiting items",
    ),
    Key("delayed", "zset", "partition", "positions that wait for a time; score is that time in ms", "waiting items"),
    Key("inflight", "hash", "partition", "position -> record of the lock, one readable line", "sum of credit"),
    Key(
        "lock_deadlines", "zset", "partition", "positions of locked items; score is the deadline in ms", "sum of credit"
    ),
    Key(
        "locks_by_subscriber",
        "zset",
        "partition",
        "token and position of locked items, or in a collection token and reference; score is the holder's subid",
        "sum of credit",
    ),
    Key("subscribers", "hash", "partition", "subid -> credit, bounces, sending, jid", "100,000 subscribers"),
    Key(
        "ready_subscribers",
        "zset",
        "partition",
        "subids with free credit; score is when last served",
        "100,000 subscribers",
    ),
    Key(
        "idle_subscribers",
        "zset",
        "partition",
        "subids without free credit; score is when last served",
        "100,000 subscribers",
    ),
    Key(
        "waiting",
        "zset",
        "partition",
        "subids of pull subscriptions that wait; score is since when, or 4e15 and when they were told, in ms",
        "100,000 subscribers",
    ),
    Key(
        "waiters",
        "hash",
        "partition",
        "subid -> since when it has waited or `-` if it has no room, when it last looked, the process to wake",
        "100,000 subscribers",
    ),
    Key(
        "history",
        "hash",
        "partition",
        "position -> attempts, those that do not count, last holders; a line for each of the last attempts",
        "waiting items",
    ),
    Key(
        "outbox",
        "zset",
        "partition",
        "what must arrive elsewhere, as KIND/NAME: item, end, child, left, parents, schedule; score is its next time, ms",
        "drained by delivery",
    ),
    Key(
        "outbox_replies",
        "zset",
        "partition",
        "the same of what only a frontend with a stream can deliver, reply/POSITION",
        "drained by frontends",
    ),
    Key("outbox_attempts", "hash", "partition", "entry of these -> attempts to deliver it", "their entries"),
    Key(
        "outbox_items",
        "hash",
        "partition",
        "position -> attempts, last holder or >node, target and reason of a dead letter or moved item",
        "drained by delivery",
    ),
    Key(
        "outbox_records",
        "hash",
        "partition",
        "entry of these -> the end of an item, the record of one that waited, or an item that is published with another's"
        " acknowledgement; after/token -> the last dependent told",
        "drained by delivery, 64 KiB of result each, 256 KiB of items for an acknowledgement",
    ),
    Key("replays", "hash", "partition", "answers given to retract and unlock", "5,000 answers or a minute"),
    Key("replays_old", "hash", "partition", "the previous generation of answers", "5,000 answers or a minute"),
    Key(
        "dedupe",
        "zset",
        "partition",
        "item ids whose repeats are ignored, tickets of publishes and of items from other nodes; score is until when in ms",
        "dedupe window, QOS_WINDOW_SECONDS",
    ),
    Key("journal", "stream", "partition", "one record per closed delivery attempt", "JOURNAL_RECORDS, a week"),
    Key(
        "confirmations",
        "hash",
        "partition",
        "position -> stage, tries and message of a delivery to confirm",
        "sum of credit",
    ),
    Key("retries", "zset", "partition", "positions of these; score is when to try again, in ms", "sum of credit"),
    Key(
        "progress",
        "hash",
        "partition",
        "position of a locked item -> when its holder told that it has begun or how far it is, the share, and a note; "
        "`!` and position -> nothing, of a holder that has lost another lock",
        "twice the sum of credit",
    ),
    Key(
        "replies",
        "hash",
        "partition",
        "position -> JID that asked for the item's end; +position -> token of an awaited item",
        "items",
    ),
    Key(
        "results",
        "hash",
        "partition",
        "item id -> its end, for those that look for it",
        "stanzaq#result_seconds, 64 KiB of result each, 64 MiB",
    ),
    Key(
        "awaited",
        "zset",
        "partition",
        "tokens of items that others wait for, and who waits, in both orders; score is 0",
        "2 for each parent of an item that waits, or whose node was deleted before the parent has ended",
    ),
    Key(
        "dependents",
        "hash",
        "partition",
        "position -> parents of an item that waits for them, and what became of each, as JSON",
        "waiting items",
    ),
    Key(
        "result_expiry",
        "zset",
        "partition",
        "item ids in `results`; score is when each expires in ms",
        "stanzaq#result_seconds",
    ),
    Key(
        "readers",
        "hash",
        "partition",
        "subid -> position, committed position and unsent shares of a reader of the log",
        "100,000 subscribers",
    ),
    Key(
        "readers_ready",
        "zset",
        "partition",
        "subids of readers with room; score is the place they have read to",
        "readers",
    ),
    Key(
        "uncommitted",
        "zset",
        "partition",
        "subid and position of what readers have not committed; score 0",
        "sum of readers' credit",
    ),
    Key(
        "references",
        "hash",
        "partition",
        "reference of a collection -> position of its lock; `=` and position -> reference, sending, collection, subid",
        "twice the sum of credit",
    ),
    Key(
        "lent",
        "hash",
        "partition",
        "of a collection: reference -> subid, turn, turn before, pause until a look, lock time, end, deadline, reason, queue",
        "sum of credit",
    ),
    Key(
        "looks",
        "zset",
        "partition",
        "of a collection: references; score is when to look at each next, in ms of its own time",
        "sum of credit",
    ),
    Key(
        "asking", "zset", "partition", "of a collection: queues that ask for subscribers; score is their turn", "queues"
    ),
    Key(
        "wants",
        "hash",
        "partition",
        "of a collection: queue -> for how many items, its level, when, its time in ms then, its lock time, last holders",
        "queues",
    ),
    Key(
        "passed_over",
        "zset",
        "partition",
        "of a collection: subid and queue that does not admit it; score is until when, in ms of the collection's time",
        "the refusals of ten seconds",
    ),
    Key(
        "subids",
        "hash",
        "partition",
        "each subid of a JID that has had several -> all of them, the first one first",
        "32 x 100,000 subscribers",
    ),
    Key("scopes", "hash", "partition", "of a collection: subid -> what the subscription is for", "100,000 subscribers"),
    Key(
        "subscription_expiry",
        "zset",
        "partition",
        "subids whose subscription has an end; score is when in ms",
        "100,000 subscribers",
    ),
    Key(
        "locks_to_release",
        "hash",
        "partition",
        "subid of an ended subscription with locks -> last token to release, how and why",
        "drained by sweeps",
    ),
    Key("group_heads", "hash", "partition", "group key -> position of the item that is ahead", "waiting items"),
    Key(
        "group_of",
        "hash",
        "partition",
        "position -> group key of an item that is ahead, blocked or bounded",
        "waiting items",
    ),
    Key(
        "group_blocked",
        "zset",
        "partition",
        "group keys and positions of items that wait for their group; score is 0",
        "waiting items",
    ),
    Key(
        "fair_items",
        "zset",
        "partition",
        "tenants and positions of items that may go out, in nodes with a fair order; score is 0",
        "waiting items",
    ),
    Key("fair_tenants", "zset", "partition", "tenants with such items; score is their turn", "waiting items"),
    Key("fair_weights", "hash", "partition", "tenant -> weight, if that is not 1", "1,000 tenants"),
    Key("key_locks", "zset", "partition", "group keys and positions of locked items; score is 0", "sum of credit"),
    Key(
        "key_rates",
        "zset",
        "partition",
        "group key -> when its items would be out at an even pace, in µs",
        "active keys",
    ),
    Key(
        "key_blocked",
        "zset",
        "partition",
        "group keys with blocked items; score is the node's revision",
        "waiting items",
    ),
    Key("key_due", "zset", "partition", "group keys that wait for a time; score is that time in ms", "waiting items"),
    Key(
        "publish_rates",
        "zset",
        "partition",
        "publisher -> when its items would be published at an even pace, in µs; in the first partition",
        "publishers of the last burst",
    ),
    Key(
        "selectors",
        "hash",
        "partition",
        "subid -> its selector as said, what an item must have, and the selector as compiled",
        "100 subscribers and those of collections, 1 KiB of text each",
    ),
    Key(
        "conditions",
        "hash",
        "partition",
        "property and value -> subids whose selectors require it or an alternative; `*`: subids without such a condition",
        "64 for each selector",
    ),
    Key(
        "selection_progress",
        "hash",
        "partition",
        "subid -> place up to which its selector has examined skipped items, until it has examined all",
        "selectors",
    ),
    Key(
        "skipped",
        "zset",
        "partition",
        "subids and positions of items that no subscriber with credit selects, or that came back for one; score is 0",
        "waiting items, and 1,000 for each selector",
    ),
    Key(
        "by_priority",
        "zset",
        "partition",
        "padded positions of items of another priority; score is 9 less that, 10 more while they do not stand here",
        "items",
    ),
    Key("expirations", "zset", "partition", "waiting positions that expire; score is when in ms", "waiting items"),
    Key(
        "group_epochs",
        "hash",
        "partition",
        "group -> epoch, and until when it is kept without an owner",
        "1,000 groups",
    ),
    Key(
        "reader_owners",
        "hash",
        "partition",
        "group -> epoch, fence, end of the lease and 1 while it is there, of the link that reads for it",
        "1,000 groups",
    ),
    Key(
        "schedules",
        "hash",
        "partition",
        "of a node's first partition: id -> a schedule and how far it has come, as JSON",
        "1,000 schedules",
    ),
    Key("schedule_items", "hash", "partition", "id -> the item that a schedule publishes", "1,000 schedules"),
    Key(
        "node",
        "hash",
        "node",
        "incarnation, revision, created, creator, format, parent and its incarnation",
        "seven fields",
    ),
    Key(
        "options",
        "hash",
        "node",
        "configuration fields that differ from the default",
        "a dozen fields",
    ),
    Key("affiliations", "hash", "node", "bare JID, domain or group -> affiliation", "10,000 entries"),
    Key(
        "pending",
        "hash",
        "node",
        "JID -> since when, claimed when, and the request: a subscription that waits for approval",
        "1,000 entries",
    ),
    Key(
        "members",
        "hash",
        "node",
        "subid -> group, credit, share, sending, jid of a member that names no partitions",
        "100,000 members",
    ),
    Key(
        "children",
        "zset",
        "node",
        "names of a collection's children, and of former ones; score is since when in ms",
        "500 entries",
    ),
    Key(
        "hour",
        "hash",
        "node",
        "minute of the hour -> time in ms, waiting, in flight, age of the oldest, published, finished and attempts ever",
        "60 fields",
    ),
    Key(
        "resources",
        "zset",
        "jid",
        "available resources of a bare JID; score is the last presence, in ms",
        "1,000; an hour without subscriptions",
    ),
    Key(
        "nodes",
        "zset",
        "jid",
        "resource and node of each subscription; score is when it was last true in ms, negative: noted before it is made",
        "1,000 entries",
    ),
    Key("clients", "hash", "jid", "member of `nodes` -> the program that made the subscription", "as `nodes`"),
    Key(
        "pending_nodes",
        "zset",
        "jid",
        "resource and node of each subscription that waits for approval; score as of `nodes`",
        "1,000 entries",
    ),
    Key(
        "affiliated",
        "zset",
        "jid",
        "nodes that have given a bare JID, a domain or a group an affiliation; score as of `nodes`",
        "1,000 entries",
    ),
    Key(
        "token_groups",
        "zset",
        "jid",
        "groups of a token of the account; score: when it was issued, in seconds",
        "the 4 newest tokens, until a day after they have ended",
    ),
    Key(
        "created_nodes",
        "zset",
        "jid",
        "nodes that a bare JID has created, or the users of a domain; score as of `nodes`",
        "NODE_QUOTA, quotas",
    ),
    Key(
        "created_partitions",
        "hash",
        "jid",
        "of these nodes: node -> partitions that count for the quota, and when they were counted, in ms",
        "as `created_nodes`",
    ),
    Key(
        "quota_use",
        "hash",
        "service",
        "bare JID or domain -> items and bytes when they were measured last, and when all publishes would be at an even pace",
        "owners published to lately, or with a quota that is used up",
    ),
    Key(
        "audit_notes",
        "hash",
        "service",
        "administrative commands whose entry is not in the audit yet: name -> the entry, as JSON",
        "commands under way; 10,000 while they cannot be published",
    ),
    Key("quota_published", "hash", "service", "owner -> publishes since the last measurement", "owners"),
    Key("quota_measuring", "hash", "service", "there while a frontend measures, and for a while after", "1"),
    Key("quotas", "hash", "service", "bare JID, domain or `default` -> its quota, as JSON", "1,000 quotas"),
    Key(
        "frontends",
        "zset",
        "service",
        "frontends; score is the last heartbeat in ms, 0: disconnected",
        "live frontends",
    ),
    Key(
        "disconnected",
        "hash",
        "service",
        "frontend -> when it was disconnected, in ms, and by whom",
        "1,000 entries of a day",
    ),
    Key(
        "http_amqp_frontends",
        "zset",
        "service",
        "door and name of frontends that serve only HTTP or AMQP; score is the last heartbeat in ms",
        "live frontends, and those that have ended in an hour",
    ),
    Key(
        "frontend_details",
        "hash",
        "service",
        "frontend -> its host, process, version, door, and when it started in ms, as JSON",
        "live frontends, and those killed since the last start of one",
    ),
    Key(
        "process_usage",
        "hash",
        "service",
        "minute of the hour, door or `redis`, name of a process -> time in ms, processor time in ms, jobs that ended there",
        "60 for each process of the last hour",
    ),
    Key(
        "sent_until",
        "hash",
        "service",
        "frontend -> time in ms before which all that was handed to it is on its stream",
        "live frontends",
    ),
    Key("due", "zset", "service", "partitions; score is when they are next due in ms", "partitions"),
    Key("changed", "zset", "service", "changed nodes; score is when the change was reported, in ms", "nodes"),
    Key(
        "notices",
        "list",
        "service",
        "notices that a process without a stream has left for a frontend to send, as JSON",
        "10,000 notices or an hour",
    ),
    Key(
        "wakeups",
        "list",
        "process",
        "subid and partition of a pull subscription that waits in the process, for which items wait",
        "ten seconds",
    ),
    Key(
        "served_partitions",
        "zset",
        "process",
        "partitions that may have handed something to the frontend; score is when they were noted last, in ms",
        "partitions used in two hours; a day after it has ended",
    ),
    Key("wakeup", "list", "service", "`1` while a frontend is to send a heartbeat at once", "one entry"),
    Key(
        "libraries",
        "zset",
        "service",
        "libraries of functions; score is when a frontend last named it, in ms",
        "one for each version of a day",
    ),
    Key(
        "store",
        "hash",
        "service",
        "format: the version of this table that all keys are kept by; least: the oldest one that may use them",
        "two fields",
    ),
    Key("upgrade", "hash", "service", "by: the process that upgrades the store; it expires", "one field"),
    Key("all_nodes", "zset", "service", "names of all nodes; score is their creation in ms", "nodes"),
    Key(
        "leases",
        "zset",
        "service",
        "names of the records of leases over several queues; score is their creation in ms",
        "HTTP_LEASES for each account",
    ),
    Key("names", "zset", "service", "what `all_nodes` was before formats were recorded; never written", "nodes"),
    Key(
        "prepared",
        "hash",
        "qos",
        "bare JID, resource, msgId -> message stored until `deliver`",
        "QOS_TOTAL_MESSAGES, _BYTES",
    ),
    Key("prepared_since", "zset", "qos", "names of stored messages; score is since when in ms", "QOS_TOTAL_MESSAGES"),
    Key("prepared_names", "zset", "qos", "names of stored messages, sorted: counts by JID", "QOS_TOTAL_MESSAGES"),
    Key(
        "prepared_bytes",
        "hash",
        "qos",
        "bare JID -> bytes stored; the empty name: the total",
        "senders of stored messages",
    ),
    Key("deliveries_begun", "zset", "qos", "names whose delivery has begun; score is when in ms", "QOS_TOTAL_MESSAGES"),
    Key(
        "delivered", "hash", "qos", "names of delivered messages -> their digests", "QOS_REMEMBERED, QOS_WINDOW_SECONDS"
    ),
    Key(
        "delivered_old",
        "hash",
        "qos",
        "the previous generation of delivered ones",
        "QOS_REMEMBERED, QOS_WINDOW_SECONDS",
    ),
)

BY_NAME: Final = {key.name: key for key in TABLE}

SERVICE: Final = "service"
"""Hash tag of keys that belong to no node."""

QOS: Final = "qos"
"""Hash tag of prepared messages: they may be for any node, and share common limits."""

PREFIX: Final = "sq"
"""What keys begin with unless a service has a prefix of its own."""

_prefix = PREFIX

_ESCAPED: Final = str.maketrans({char: f"%{ord(char):02X}" for char in "%{} \t\r\n"})


def use_prefix(prefix: str) -> None:
    """Let all keys that this process names from now on begin with a service's prefix."""
    global _prefix  # noqa: PLW0603  (a process serves one service)
    if prefix != _prefix:
        _prefix = prefix
        all_of_partition.cache_clear()


def prefix() -> str:
    """Return what keys begin with in this process."""
    return _prefix


def escape(text: str) -> str:
    """Make a name safe and readable within the braces of a hash tag: braces, blanks and % are escaped."""
    return text.translate(_ESCAPED)


def _key(tag: str, name: str) -> str:
    return f"{_prefix}:{{{tag}}}:{BY_NAME[name].name}"


def of_partition(name: str, partition: Partition) -> str:
    """Return a key of a partition: `sq:{NODE@INCARNATION/P}:name`. This and the others raise KeyError on unknown names."""
    return _key(escape(str(partition)), name)


@lru_cache(maxsize=4_096)
def all_of_partition(names: tuple[str, ...], partition: Partition) -> tuple[str, ...]:
    """Return several keys of a partition; cached for busy partitions."""
    begin = f"{_prefix}:{{{escape(str(partition))}}}:"
    return tuple([begin + name for name in _check_names(names)])


@cache
def _check_names(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(BY_NAME[name].name for name in names)


def of_node(name: str, node: str) -> str:
    """Return a key of a node's record: `sq:{NODE}:name`."""
    return _key(escape(node), name)


def of_jid(name: str, jid: str) -> str:
    """Return a key of a bare JID: `sq:{jid:JID}:name`."""
    return _key(f"jid:{escape(jid)}", name)


def of_service(name: str) -> str:
    """Return a key of the whole service: `sq:{service}:name`."""
    return _key(SERVICE, name)


def of_process(name: str, process: str) -> str:
    """Return a key of one process: `sq:{process:NAME}:name`."""
    return _key(f"process:{process}", name)


def of_qos(name: str) -> str:
    """Return a key of prepared messages: `sq:{qos}:name`."""
    return _key(QOS, name)


def unescape(text: str) -> str:
    """Read back what `escape` wrote."""
    return unquote(text)
