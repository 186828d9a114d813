"""Runs one script by its name on one partition, at a given time.

Knows the common form of all replies and checks each call against its header; must not know what any one script does.
"""

# ruff: noqa: ANN401  (what Redis takes and answers has no types of its own)

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, NamedTuple, Self

import redis
from redis.crc import key_slot

from broker import keys
from broker.journal.schema import record
from broker.model.names import Partition
from broker.model.nodes.options import NodeConfig
from broker.redis_core.operations.operation import delivery_rows, subid, subids
from broker.redis_core.operations.subscriptions import encode_selector
from broker.scripts.answers import find_answers
from broker.scripts.location import lua_directory
from broker.scripts.packaging import Library, library, script
from broker.scripts.source import Operation, modules, operation, operations
from broker.settings import Packaging

TOP = "all@life"
"""A collection, as scripts name it."""

T0: Final = 1_700_000_000_000
"""The time at which every test begins, in ms since 1970."""

FOLDER: Final = lua_directory()
SCRIPTS: Final[Mapping[str, Operation]] = {name: operation(FOLDER, name) for name in operations(FOLDER)}
ANSWERS: Final = find_answers(SCRIPTS)

PARTITIONED: Final = frozenset(
    name for name, found in SCRIPTS.items() if {"stale", "gone"} <= set(found.returns) and "now" in found.arguments
)
"""Scripts that answer in the shape that `broker.redis_core.operations.operation.Reply` reads."""

NOTICES: Final = {
    "unsubscribed": 2,
    "freed": 3,
    "asks": 5,
    "turn": 1,
    "unlocked": 4,
    "ended": 4,
    "cancelled": 4,
    "lost": 6,
    "lapsed": 3,
    "waiting": 3,
    "perished": 2,
}
"""The length of each kind of notice."""

DEFAULTS: Final[Mapping[str, str]] = {
    "revision": "",
    "format": "9",
    "frontend": "f1",
    "dedupe": "overwrite",
    "dedupe_ms": "600000",
    "once_ms": "7200000",
    "max_items": "1000",
    "node_full": "reject",
    "publish_rate": "",
    "if_replayed": "",
    "max_subscribers": "100000",
    "max_bytes": "262144",
    "limit": "100",
    "scan": "0",
    "grave_seconds": "60",
    "dead_after_ms": "3000",
    "sent_until": "",
    "after": "",
    "age_ms": "600000",
    "upto": "",
    "past": "0-0",
    "till": "+",
    "retry": "5000 20000 3",
    "before": "",
    "backwards": "",
    "index": "0",
    "subids": "",
    "count": "100",
    "dead_letters": "jobs/dead",
    "parent": "",
    "parent_life": "",
    "destinations": "",
    "group": "",
    "fence": "",
    "together": "",
    "most": "3",
    "client": "",
    "above": "",
    "afresh": "",
}

# Every key of the holder as text that does not depend on Redis's encoding.
_SNAPSHOT: Final = """
local found = {}
for i, name in ipairs(KEYS) do
  local kind, all = redis.call('TYPE', name).ok, {}
  if kind == 'hash' then
    local flat = redis.call('HGETALL', name)
    for j = 1, #flat, 2 do all[#all + 1] = #flat[j] .. ' ' .. flat[j] .. flat[j + 1] end
  elseif kind == 'set' then
    all = redis.call('SMEMBERS', name)
  elseif kind == 'zset' then
    all = redis.call('ZRANGE', name, 0, -1, 'WITHSCORES')
    for j = 1, #all, 2 do
      all[(j + 1) / 2] = #all[j] .. ' ' .. all[j] .. all[j + 1]
    end
  elseif kind == 'stream' then
    -- Entries never change: how many there are, and what was added and deleted last, says it all.
    local info = redis.call('XINFO', 'STREAM', name)
    for j = 2, #info, 2 do
      if type(info[j]) ~= 'table' then all[#all + 1] = tostring(info[j]) end
    end
  end
  if kind == 'hash' or kind == 'set' then table.sort(all) end
  found[i] = kind .. redis.sha1hex(table.concat(all, '\\n')) .. redis.call('EXISTS', name)
end
return found
"""


class Delivered(NamedTuple):
    """A delivery in a script's answer."""

    jid: str
    position: str
    item: str
    token: int
    attempt: int
    deadline: int
    by: str
    body: str
    sequence: int
    stage: str
    key: str
    collection: str = ""
    subid: str = ""
    ready: str = ""
    reply: str = ""
    untried: str = ""

    @classmethod
    def read(cls, row: tuple[Any, ...]) -> Self:
        """Read a delivery; the last value names its subscription, and what few items need."""
        return cls(*row[:-1], *row[-1].split(" "))


class Letter(NamedTuple):
    """An item on its way to another node, as `read_outbox` returns it."""

    entry: str
    item: str
    by: str
    body: str
    attempts: int
    jid: str
    reason: str
    key: str
    target: str
    history: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply whose code word is `ok`, or another word alone."""

    code: str
    rows: list[Any] = field(default_factory=list)
    deliveries: list[Delivered] = field(default_factory=list)
    notices: list[list[Any]] = field(default_factory=list)
    outbox: bool = False
    due: int = 0
    more: int = 0
    token: int = 0

    @property
    def words(self) -> list[str]:
        """The code word of each row."""
        return [row[0] for row in self.rows]

    @property
    def given(self) -> list[tuple[str, str]]:
        """Return who was handed what."""
        return [(delivery.jid, delivery.item) for delivery in self.deliveries]


def text(value: Any) -> Any:
    """Return a reply with its bytes read as text."""
    if isinstance(value, bytes):
        # Envelopes are not text.
        return value.decode(errors="surrogateescape")
    return [text(part) for part in value] if isinstance(value, list) else value


_GUARD: Final = """
local guarded = false
local function guard(module)
  local kept = {}
  for name, value in pairs(module) do kept[name] = value end
  for name, value in pairs(kept) do
    module[name] = nil
    if type(value) == 'table' then guard(value) end
  end
  setmetatable(module, {__index = kept, __newindex = function(_, name) error('a call writes to a module: ' .. name) end})
end
"""


@cache
def guarded_library() -> Library:
    """Return a library whose module tables are read-only: the first call does that, since a load may do little."""
    whole = library(FOLDER)
    name = whole.name.replace("stanzaq", "guarded")
    tables = list(modules(FOLDER))
    # A function may have at most sixty upvalues.
    parts = [tables[first : first + 50] for first in range(0, len(tables), 50)]
    parting = [
        f"local function guard{number}() {' '.join(f'guard({table})' for table in part)} end"
        for number, part in enumerate(parts)
    ]
    begin = "callback = function(KEYS, ARGV)"
    guarding = " ".join(f"guard{number}()" for number in range(len(parts)))
    text = whole.text.replace(whole.name, name)
    built, operation, called = text.partition("do\nlocal function operation()")
    called = called.replace(begin, f"{begin}\nif not guarded then guarded = true {guarding} end")
    return Library(name, "".join((built, _GUARD, "\n".join(parting), "\n", operation, called)))


def answered(row: Any) -> Any:
    """Return the answer to one row: a text alone means `ok` and this text."""
    return row if isinstance(row, list) else ["ok", row]


def check_described(found: Operation, reply: Any) -> None:
    """Raise OperationDefect if the header does not describe a reply, or the answers within."""
    answers = ANSWERS(found.name)
    read = answers.read(reply)
    if found.partitioned and read.code == b"ok":
        answers.read_rows(read.rows or [])


class Runner:
    """Operations on one server."""

    def __init__(
        self,
        client: "redis.Redis",
        packaging: Packaging = Packaging.FUNCTIONS,
        *,
        checked: bool = True,
        guarded: bool = False,
    ) -> None:
        """Run through `client`; `checked` compares all keys before and after each call, `guarded` protects modules."""
        self.client = client
        self.library = guarded_library() if guarded else library(FOLDER)
        self.packaging = packaging
        self._checked = checked

    def run(self, name: str, names: Sequence[str], fixed: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Any:
        """Run a script on these keys and check its effects against its header."""
        found = SCRIPTS[name]
        assert set(fixed) == set(found.arguments), f"{name} takes {found.arguments}"
        assert len({key_slot(key.encode()) for key in names}) == 1, f"{name} has keys in several slots: {names}"
        values = [fixed[argument] for argument in found.arguments]
        for row in rows:
            assert set(row) == set(found.columns), f"{name} has the columns {found.columns}"
            values += [row[column] for column in found.columns]
        before = self._snapshot(names)
        raw = self._call(found, names, values)
        check_described(found, raw)
        reply = text(raw)
        after = self._snapshot(names)
        changed = (
            {key for key, old, new in zip(found.keys[: len(names)], before, after, strict=True) if old != new}
            if before
            else set()
        )
        assert changed <= found.writes, f"{name} changed {changed - found.writes}, which its header does not say"
        assert reply[0] in found.returns, f"{name} answered {reply[0]}, which its header does not say"
        return reply

    def _call(self, found: Operation, names: Sequence[str], values: Sequence[Any]) -> Any:
        if self.packaging is Packaging.FUNCTIONS:
            whole = self.library
            try:
                return self.client.fcall(whole.function(found.name), len(names), *names, *values)
            except redis.exceptions.ResponseError as error:
                if "Function not found" not in str(error):
                    raise
                # Of a cluster some masters may have it.
                self.client.function_load(whole.text, replace=True)
                return self.client.fcall(whole.function(found.name), len(names), *names, *values)
        made = script(FOLDER, found.name)
        try:
            return self.client.evalsha(made.sha, len(names), *names, *values)
        except redis.exceptions.NoScriptError:
            self.client.script_load(made.text)
            return self.client.evalsha(made.sha, len(names), *names, *values)

    def _snapshot(self, names: Sequence[str]) -> list[str]:
        return text(self.client.eval(_SNAPSHOT, len(names), *names)) if self._checked else []


USUAL: Final = {**NodeConfig().partition_values("jobs"), "above": ""}
"""The options that partitions keep, with their defaults."""


class Queue:
    """One partition, and a clock that the test moves."""

    def __init__(self, runner: Runner, partition: Partition) -> None:
        """Take a partition that is not opened yet."""
        self.runner = runner
        self.client = runner.client
        self.partition = partition
        self.now = T0
        self.frontend = "f1"
        self.wide = False

    def key(self, name: str) -> str:
        """Name one of the partition's keys."""
        return keys.of_partition(name, self.partition)

    def run(self, name: str, *rows: Mapping[str, Any], **fixed: Any) -> Answer:
        """Run a script; missing arguments are those of a plain queue."""
        found = SCRIPTS[name]
        known = {**DEFAULTS, "number": self.partition.number, "now": self.now, "frontend": self.frontend, **fixed}
        wanted = {argument: known[argument] for argument in found.arguments}
        assert fixed.keys() <= wanted.keys(), f"{name} takes {found.arguments}"
        rows = tuple({column: "" for column in found.columns if column == "next"} | dict(row) for row in rows)
        reply = self.runner.run(name, list(map(self.key, found.keys if self.wide else found.plain)), wanted, rows)
        if reply[0] == "wide":
            # As pipelines do.
            self.wide = True
            reply = self.runner.run(name, list(map(self.key, found.keys)), wanted, rows)
        if name not in PARTITIONED or reply[0] != "ok":
            return Answer(reply[0], reply[1:])
        code, results, deliveries, notices, outbox, due, more, token = reply
        answer = Answer(
            code,
            [answered(row) for row in results or []] if found.row_returns else results or [],
            [Delivered.read(row) for row in delivery_rows(deliveries)],
            notices or [],
            outbox == 1,
            due,
            more,
            token,
        )
        self._check(found, answer)
        if found.row_returns and len(answer.rows) < len(rows) and not wanted.get("together"):
            # Rows without room in the budget are sent again, as pipelines do.
            assert answer.rows
            rest = self.run(name, *rows[len(answer.rows) :], **fixed)
            joined = {part: getattr(answer, part) + getattr(rest, part) for part in ("rows", "deliveries", "notices")}
            return replace(rest, **joined, outbox=answer.outbox or rest.outbox)
        return answer

    def _check(self, found: Operation, answer: Answer) -> None:
        if found.row_returns:
            assert {row[0] for row in answer.rows} <= set(found.row_returns)
        for delivery in answer.deliveries:
            assert all(isinstance(delivery[i], int) for i in (3, 4, 5, 8)), delivery
        # Values about its subscription may follow.
        assert all(0 <= len(notice) - NOTICES[notice[0]] <= 2 for notice in answer.notices)
        assert (type(answer.due), type(answer.more), type(answer.token)) == (int, int, int)

    # Each operation in one line.

    def open(self, *weights: Mapping[str, Any], **fixed: Any) -> Answer:
        """Open the partition, perhaps with weights of tenants; options that are not named have their defaults."""
        arguments = {"revision": 1, "lock_ms": 60_000, "max_deliveries": 20, "journal_max": 1000}
        arguments |= {name: fixed.pop(name) for name in tuple(fixed) if name in arguments or name == "now"}
        unknown = fixed.keys() - USUAL.keys()
        assert not unknown, unknown
        options = {name: "" if str(fixed.get(name, usual)) == usual else fixed[name] for name, usual in USUAL.items()}
        rows = [{"kind": "option", "name": name, "value": value} for name, value in options.items()]
        rows += [{"kind": "weight", "name": each["tenant"], "value": each["weight"]} for each in weights]
        return self.run("open_partition", *rows, **arguments)

    def publish(self, *items: str, by: str = "alice@x", body: str | bytes | None = None, **more: Any) -> Answer:
        """Publish items; by default the body is the item and the time."""
        columns = {"once": "", "key": "", "hints": "", "refused": ""}
        columns |= {name: more.pop(name) for name in tuple(more) if name in columns}
        rows = [{"item": item, "by": by, "body": body or f"{item} at {self.now - T0}", **columns} for item in items]
        return self.run("publish", *rows, **more)

    def read_outbox(self, **fixed: Any) -> dict[str, list[Any]]:
        """Read what is due in the outbox: the content of each entry."""
        now, *found = self.run("read_outbox", **fixed).rows
        assert now == self.now
        return {entry: content for entry, _attempt, *content in found}

    def told(self, answer: Answer, kind: str) -> dict[str, list[Any]]:
        """Read the entries of a kind, as a frontend does that is told that some are due."""
        found = self.read_outbox() if answer.outbox else {}
        return {entry: content for entry, content in found.items() if entry.startswith(f"{kind}/")}

    def letters(self, answer: Answer) -> list[Letter]:
        """Read items that leave, as a frontend does that is told that some are due."""
        return [Letter(entry, *content) for entry, content in self.told(answer, "item").items()]

    def end(self, *entries: str, target: str = "", attempt: int = 0) -> Answer:
        """End entries of the outbox, or let items go on to another node after an attempt."""
        return self.run("end_entries", *({"entry": entry, "target": target, "attempt": attempt} for entry in entries))

    def subscribe(
        self,
        jid: str,
        credit: int,
        qos: str = "unacknowledged",
        *,
        must: str = "",
        lease: int | str = 0,
        scope: str = "",
        selector: str = "",
        named: str = "",
        several: str = "",
        batch: int | str = "",
        **fixed: Any,
    ) -> Answer:
        """Subscribe a JID, or change its options."""
        row = {
            "subid": subid(jid),
            "jid": jid,
            "credit": credit,
            "qos": qos,
            "batch": batch,
            "must": must,
            "lease": lease,
        }
        row |= {"scope": scope, "named": named, "several": several}
        row["selector"] = selector if selector == "=" else encode_selector(selector)
        return self.run("subscribe", row, **fixed)

    def follow(self, jid: str, credit: int, start: str = "@latest", *, lease: int = 0) -> Answer:
        """Subscribe a log reader."""
        return self.run(
            "subscribe_log", {"subid": subid(jid), "jid": jid, "credit": credit, "start": start, "lease": lease}
        )

    def commit(self, jid: str, position: str) -> Answer:
        """Commit a reader's position."""
        return self.run("commit", {"subids": subids(jid), "position": position})

    def read(self, start: str = "@earliest", **fixed: Any) -> list[str]:
        """Name the items of the log in order."""
        return [row[1] for row in self.log_page(start, **fixed)[5]]

    def log_page(self, start: str = "@earliest", **fixed: Any) -> list[Any]:
        """Read the log: the code word, the gap, the earliest and the latest position, the last one read, and the entries."""
        (answer,) = self.run("read_log", start=start, **fixed).rows
        found: list[Any] = answer
        return found

    def attach(
        self,
        jid: str,
        epoch: Any = "",
        *,
        group: str = "g",
        credit: int = 10,
        expected: Any = "",
        dry: str = "",
        **fixed: Any,
    ) -> Answer:
        """Attach a JID as the owner of the partition."""
        row = {"subid": subid(jid), "jid": jid, "credit": credit, "sending": "unacknowledged", "group": group}
        return self.run(
            "acquire_partition",
            {**row, "epoch": epoch, "expected": expected, "reason": "stolen", "dry": dry, "alone": ""},
            **fixed,
        )

    def keep(self, jid: str) -> Answer:
        """Renew an ownership."""
        return self.run("renew_ownership", {"subids": subids(jid)})

    def lend(self, jid: str, *names: str, sending: str = "unacknowledged", **more: Any) -> Answer:
        """Receive for a collection's subscriber, an item under each reference."""
        first = subid(jid)
        about: dict[str, Any] = {"subid": first, "first": first, "jid": jid, "sending": sending}
        about |= {"collection": TOP, "whose": ""}
        about |= {"deadline": self.now + 3000, "admitted": "1"} | more
        return self.run("receive_by_reference", *({"reference": name, **about} for name in names))

    def turn(
        self, words: str = "", *, queue: str = "q@life/0", asks: int | str = "", named: str = "t", **more: Any
    ) -> Answer:
        """Take a turn of a collection, named so; `asks` is for how many items a queue asks."""
        about = {"level": 1, "stamp": self.now, "hold": 60_000, "holders": "", "puller": "", "limit": ""}
        about |= {name: more.pop(name) for name in about if name in more}
        row = {"words": words, "queue": queue if asks != "" else "", "count": asks, **about}
        return self.run("turn", row, taken=named, **more)

    def credit(self, jid: str) -> int:
        """Return the credit of a subscriber here."""
        line: Any = self.client.hget(self.key("subscribers"), subid(jid))
        return int(line.split()[0])

    def unsubscribe(self, jid: str, *, release: str = "", kept: str = "", **more: str) -> Answer:
        """Remove a subscription."""
        columns = {
            "named": "",
            "which": "this",
            "reason": "",
            "lapsed": "",
            "told": "",
            "group": "",
            **more,
        }
        return self.run("unsubscribe", {"subid": subid(jid), "release": release, "kept": kept, **columns})

    def retract(self, jid: str, item: str, token: Any = "", *, next: str = "", **more: Any) -> Answer:  # noqa: A002
        """Retract an item."""
        return self.run("retract", self.asked(jid, item, token, **more) | {"next": next})

    def unlock(self, jid: str, item: str, token: Any = "", **more: Any) -> Answer:
        """Release an item."""
        return self.run("unlock", self.given_back(jid, item, token, **more))

    def renew(
        self,
        jid: str,
        item: str,
        token: Any = "",
        *,
        owner: str = "",
        lock_ms: int | str = "",
        progress: str = "",
        begun: str = "",
    ) -> Answer:
        """Renew a lock."""
        row = {**self.holder(jid, item, token, owner=owner), "lock_ms": lock_ms, "progress": progress, "begun": begun}
        return self.run("renew", row)

    def expire(self, **fixed: Any) -> Answer:
        """Sweep."""
        return self.run("sweep", **fixed)

    def bounce(self, jid: str, *batch: Delivered, gone: str = "", token: int | None = None) -> Answer:
        """Bounce a delivery."""
        row = self.confirmed(jid, *batch, token=token)
        return self.run("bounce", {**row, "subids": subids(jid), "gone": gone})

    def confirm(self, jid: str, *batch: Delivered, token: int | None = None, message: str = "") -> Answer:
        """Confirm a delivery."""
        return self.run("confirm", {**self.confirmed(jid, *batch, token=token), "message": message})

    def confirmed(self, jid: str, delivery: Delivered, *others: Delivered, token: int | None = None) -> dict[str, Any]:
        """Return what the rows of a confirmation and a bounce have in common."""
        row = {"sender": jid, "position": delivery.position, "token": delivery.token if token is None else token}
        stage = delivery.stage.rstrip("0123456789")
        return {**row, "stage": stage, "others": " ".join(f"{each.position} {each.token}" for each in others)}

    def holder(self, jid: str, item: str, token: Any = "", *, owner: str = "") -> dict[str, Any]:
        """Return the row of a possible holder of an item."""
        return {"sender": jid, "subids": subids(jid), "owner": owner, "item": item, "token": token}

    def asked(self, jid: str, item: str, token: Any = "", *, owner: str = "", request: str = "") -> dict[str, Any]:
        """Return the row of a retract."""
        return {**self.holder(jid, item, token, owner=owner), "request": request}

    def given_back(self, jid: str, item: str, token: Any = "", **more: Any) -> dict[str, Any]:
        """Return the row of an unlock."""
        hints = {
            name: more.pop(name, default)
            for name, default in (("delay_ms", ""), ("reason", ""), ("dead_letter", ""), ("untried", ""))
        }
        return {**self.asked(jid, item, token, **more), **hints}

    def locks(self, jid: str) -> list[Any]:
        """List what a JID holds: item, token, attempt, deadline."""
        found: list[Any] = self.run("list_locks", {"subids": subids(jid)}).rows[0][1]
        return found

    def receive(self, jid: str, limit: Any = "", **more: Any) -> list[Any]:
        """Receive for a pull subscription up to a limit, by default its own credit; returns the answer's row."""
        row, fixed = self.receiving(jid, limit), {"most": 200, "max_bytes": 1_048_576}
        fixed |= {name: more.pop(name) for name in ("most", "max_bytes", "frontend") if name in more}
        found: list[Any] = self.run("receive", row | more, **fixed).rows[0]
        return found

    def receiving(self, jid: str, limit: Any = "", **more: Any) -> dict[str, Any]:
        """Return the row of a receive; its own credit, the default limit, is found by its lease."""
        own = {"limit": "*", "lease": "0"} if limit == "" else {"limit": limit, "lease": ""}
        about = {"subid": subid(jid), "jid": jid, "lock_ms": "", "after": 0, "process": "", "selector": "="}
        about |= {"references": "", "collection": TOP, "deadline": self.now + 3000, "credit": ""}
        return about | own | more

    def looking(self, jid: str) -> dict[str, Any]:
        """Return the row of a look, which receives nothing."""
        return self.receiving(jid) | {"limit": ""}

    def browse(self, *items: str, **fixed: Any) -> dict[str, str]:
        """Return the state of each item, in order."""
        return {row[0]: row[1] for row in self.page(*items, **fixed)[0]}

    def page(self, *items: str, **fixed: Any) -> tuple[list[Any], str]:
        """Return the rows of a browse, and its last position unless it reached the end."""
        answer = self.run("browse", *({"item": item} for item in items), **fixed)
        _count, reached, rows = answer.rows
        assert bool(answer.more) == bool(reached)
        return rows, reached

    def bodies(self) -> dict[str, str]:
        """Return the payload of each item."""
        return {row[0]: row[4] for row in self.page()[0]}

    def stats(self) -> dict[str, int]:
        """Count what the partition holds."""
        names = ("waiting", "eligible", "delayed", "in_flight", "dying", "oldest_ms", "subscribers", "credit_free")
        return dict(zip(names, self.run("stats").rows[:8], strict=True))

    def ever(self) -> tuple[int, int, int]:
        """Count published items, finished items, and ended deliveries."""
        published, finished, _removed, attempts = self.run("stats").rows[10:14]
        return published, finished, attempts

    def removed(self) -> int:
        """Count entries that went without being acknowledged."""
        count: int = self.run("stats").rows[12]
        return count

    def retained(self) -> tuple[int, int]:
        """Count kept entries of finished items, and their bytes."""
        _count, _bytes = self.run("stats").rows[8:10]
        return _count, _bytes

    def journal(self) -> list[dict[str, str | int]]:
        """Read the journal."""
        records: list[Any] = self.client.xrange(self.key("journal")) or []
        return [record(fields) for _id, fields in records]

    def kept(self) -> set[str]:
        """Return the keys that exist."""
        found = set()
        for row in keys.TABLE:
            if row.holder == "partition":
                name = self.key(row.name)
                size = self.client.xlen(name) if row.type == "stream" else self.client.exists(name)
                found |= {row.name} if size else set()
        return found


def unchecked(runners: Mapping[str, Runner]) -> Queue:
    """Return a partition whose keys are not compared before and after each call: for thousands of calls, or to count commands."""
    return Queue(Runner(runners["valkey"].client, checked=False), Partition("jobs", secrets.token_hex(4)))


def commands(queue: Queue) -> int:
    """Return how many commands the server has run, also inside of scripts."""
    stats = queue.client.info("commandstats")
    return sum(each["calls"] for name, each in stats.items() if not name.startswith(("cmdstat_info", "cmdstat_config")))
