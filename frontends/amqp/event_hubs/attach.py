"""Attaches the links of an SDK, if its tokens permit it. Must not know bytes."""

import time

from broker.model import offsets
from broker.model.commands import Bind, Read
from broker.model.names import NODE_NAME_BYTES
from broker.model.nodes.nodes import NodeRecord
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Bound, Refused, Replay
from frontends.amqp.auth import shared_keys
from frontends.amqp.auth.identity import Identity
from frontends.amqp.auth.shared_keys import Grant, Grants, UntrustedToken
from frontends.amqp.errors import LIMIT, UNAUTHORIZED, Fault, fault
from frontends.amqp.event_hubs import addresses, filters, management
from frontends.amqp.event_hubs.constants import EPOCH, HUB, JWT_TYPE, MANAGEMENT, PARTITION, TOKEN_TYPE, TOKENS
from frontends.amqp.event_hubs.events import Writer
from frontends.amqp.event_hubs.producer import HubProducer
from frontends.amqp.event_hubs.request_links import ACCEPTED, LATER, OK, UNKNOWN_WHO, WRONG, Ask, RequestLink
from frontends.amqp.links import attach_options
from frontends.amqp.links.attach import LinkAttacher, Part, check_partition, publishable
from frontends.amqp.links.context import LinkContext
from frontends.amqp.links.log_consumer import LogConsumer, LogRead
from frontends.amqp.links.producer import MESSAGE_BYTES
from frontends.amqp.links.request_response import QUESTION_BYTES, ResponseConsumer
from frontends.amqp.protocol.links import Incoming, Outgoing, ProtonLink
from frontends.logins.tokens import Undecided, Untrusted


class HubLinkAttacher(LinkAttacher):
    """Attaches the links of one connection whose peer authenticates by tokens."""

    def __init__(self, context: LinkContext, identity: Identity) -> None:
        """Start without a token."""
        super().__init__(context)
        self._identity = identity
        self._grants = Grants()
        self._consumers: dict[tuple[object, str], ResponseConsumer] = {}
        self._opened: dict[Part, str] = {}

    async def attach(self, link: ProtonLink) -> Part | None:
        """Attach a link; None if it has ended meanwhile. Raises Fault and MalformedRequest."""
        path = shared_keys.path(link.address)
        if path == TOKENS:
            return self._request_link(link, path, self._authenticate)
        if not self._grants.valid(time.time()):
            raise Fault(UNAUTHORIZED, f"put a token at {TOKENS} before attaching other links")
        if path == MANAGEMENT or path.endswith(f"/{MANAGEMENT}"):
            return self._request_link(link, path, self._manage)
        self._judge(path)
        part = await (self._producer(link) if isinstance(link, Incoming) else self._receiver(link))
        if part is not None:
            self._opened[part] = path
        return part

    def left(self, part: Part) -> None:
        """Forget a link that has ended."""
        self._opened.pop(part, None)
        for place in [each for each, answers in self._consumers.items() if answers is part]:
            del self._consumers[place]

    def expire(self) -> bool:
        """End links that no token opens any more; False when all tokens have expired."""
        now = time.time()
        if self._grants.jid is not None and not self._grants.valid(now):
            return False
        for part, path in list(self._opened.items()):
            if not self._grants.opens(path, now):
                del self._opened[part]
                part.stop()
                part.link.end(Fault(UNAUTHORIZED, "the token has expired"))
        return True

    def _judge(self, path: str) -> None:
        if not self._grants.opens(path, time.time()):
            raise Fault(UNAUTHORIZED, "no token of this connection opens the address")

    async def _producer(self, link: Incoming) -> HubProducer | None:
        where = addresses.target(link.address)
        record = await self._describe(where.node)
        if not link.alive:
            return None
        publishable(record, where.partition)
        link.accept({}, most_bytes=MESSAGE_BYTES)
        return HubProducer(link, self.context, record, where.partition)

    async def _receiver(self, link: ProtonLink) -> LogConsumer | None:
        """Attach a consumer; after any other refusal than a stolen link the SDK for Python asks again for ever."""
        try:
            return await self._consumer(link)
        except MalformedRequest as wrong:
            raise fault(wrong).as_stolen() from None
        except Fault as wrong:
            raise wrong if wrong.is_ours else wrong.as_stolen() from None

    async def _consumer(self, link: ProtonLink) -> LogConsumer | None:
        assert isinstance(link, Outgoing), "a link goes one way or the other"
        where, start, epoch = (
            addresses.source(link.address),
            filters.start(link.filters),
            attach_options.epoch(link.properties, EPOCH),
        )
        record = await self._log(where.node)
        assert where.partition is not None, "a source names one"
        number = check_partition(record, where.partition)
        if not record.config.admits(where.group):
            raise fault(Refused(Problem.GROUP_NOT_FOUND, f"the node has no group {where.group}"))
        # Without an epoch, a consumer needs a partition without owner. Check this before it evicts anybody.
        group = where.group if epoch is None else ""
        found = await self._find_start(where.node, number, start.begin, group)
        if found.gap and offsets.read_partition(start.begin) is not None:
            await self._check_gap(where.node, number, start.begin)
        bind = Bind(where.node, self.context.sender, number, where.group, epoch or 0, equal=True)
        bound = None if epoch is None else await self._ask(bind, Bound)
        if not link.alive:
            if bound:
                self._unbind(where.node, where.group, bound)
            return None
        link.accept({EPOCH: bound.epoch} if bound else {})
        begins, seconds = start.first_after(found.latest), record.config.lock_seconds
        read = LogRead(where.node, number, found.after, begins, where.group, bound, seconds)
        return LogConsumer(link, self.context, read, Writer)

    async def _check_gap(self, node: str, partition: int, begin: str) -> None:
        """Refuse an offset after which events are gone: an SDK could tell nobody. Only the read of an event is sure of that."""
        found = await self._ask(Read(node, self.context.sender, partition, begin, 1), Replay)
        if found.gap:
            raise fault(
                Refused(
                    Problem.OFFSET_NOT_FOUND,
                    "the retention has removed events after this offset: start at a later one, or at -1, the oldest that is left",
                )
            )

    async def _log(self, node: str) -> NodeRecord:
        record = await self._describe(node)
        if record.config.collects or record.config.queueing:
            raise fault(MalformedRequest(Problem.UNSUPPORTED, "a hub is a log: a node without queueing"))
        return record

    # Requests and answers.

    def _request_link(self, link: ProtonLink, path: str, ask: Ask) -> Part:
        if isinstance(link, Incoming):
            link.accept({}, most_bytes=QUESTION_BYTES)
            return RequestLink(link, self.context, path, ask, self._consumers)
        assert isinstance(link, Outgoing), "a link goes one way or the other"
        link.accept({})
        answers = ResponseConsumer(link)
        for address in (path, link.reply_address):
            if address:
                self._consumers[link.session, address] = answers
        return answers

    async def _authenticate(self, asked: management.ManagementRequest) -> tuple[int, str]:
        kind = asked.said.get("type")
        taken = [TOKEN_TYPE, *([JWT_TYPE] if self._identity.tokens else [])]
        if asked.said.get("operation") != "put-token" or kind not in taken:
            return WRONG, f"only put-token of {' and '.join(taken)} is supported"
        try:
            self._grants.add(
                await self._verify(asked.value)
                if kind == JWT_TYPE
                else self._identity.keys.grant(asked.value, time.time())
            )
        except Undecided:
            return LATER, "the keys of tokens cannot be fetched: try again"
        except (UntrustedToken, Untrusted) as wrong:
            self.context.connection.refuse_token(f"the token is refused: {wrong}")
            return UNKNOWN_WHO, str(wrong)
        assert self._grants.jid, "a grant is somebody's"
        if not self.context.connection.claim(self._grants.jid):
            raise Fault(LIMIT, "your account has as many connections as it may have: close one, or come again")
        self.context.sender = self._grants.jid
        self.context.connection.authenticated()
        return ACCEPTED, "Accepted"

    async def _verify(self, token: str) -> Grant:
        """Return what a JWT opens: all that its account may use."""
        jid, ends = await self._identity.verify(token)
        return Grant(jid, "", ends)

    async def _manage(self, asked: management.ManagementRequest) -> tuple[int, str, bytes]:
        name = asked.said.get("name", "")
        if asked.said.get("operation") != "READ" or not 0 < len(name.encode()) <= NODE_NAME_BYTES:
            raise MalformedRequest(Problem.BAD_REQUEST, "only READ of a hub's name is supported")
        # The SDK for JavaScript obtains a token for exactly this path.
        self._judge(f"{name}/{MANAGEMENT}")
        match asked.said.get("type"):
            case "com.microsoft:eventhub":
                record = await self._log(name)
                return OK, "OK", management.hub(name, record.created_ms, record.config.partitions)
            case "com.microsoft:partition":
                number = check_partition(
                    await self._log(name), attach_options.partition(asked.said.get("partition", ""))
                )
                found = await self._ask(Read(name, self.context.sender, number, offsets.LATEST, 0), Replay)
                return OK, "OK", management.partition(name, found)
        raise MalformedRequest(Problem.BAD_REQUEST, f"the type must be {HUB} or {PARTITION}")
