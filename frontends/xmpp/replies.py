"""Turns a result into the reply of its IQ (Q26). Must not know the core; `notifications` writes to others."""

from typing import Final, assert_never
from xml.etree.ElementTree import Element

from broker.model.commands import (
    Affiliate,
    Affiliations,
    Approve,
    Associate,
    Browse,
    Children,
    Commit,
    Configure,
    Declare,
    Delete,
    Deliver,
    Describe,
    Disconnect,
    Dissociate,
    Frontends,
    ListPending,
    ListRequests,
    ListSchedules,
    ListSubscribers,
    Locks,
    ManageSubscribers,
    MoveItems,
    Nodes,
    Options,
    Overview,
    Partitions,
    PauseSchedule,
    PrepareMessage,
    Publish,
    Purge,
    PutSchedule,
    Read,
    ReadOutcome,
    Release,
    RemoveSchedule,
    Renew,
    RenewOwnership,
    Retract,
    RetractBatch,
    SendPending,
    SetSubscriptionOptions,
    Stats,
    Subscribe,
    Subscriptions,
    Unlock,
    Unsubscribe,
)
from broker.model.items.items import Listed, Lock
from broker.model.items.outcomes import ItemOutcome
from broker.model.items.qos import SENT, Qos
from broker.model.names import bare_jid, domain
from broker.model.nodes.nodes import Affiliation, NodeRecord
from broker.model.nodes.subscriptions import State
from broker.model.nodes.tree import SubscriptionType
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import (
    AffiliationList,
    Browsed,
    Counted,
    Declared,
    Described,
    Disconnected,
    Done,
    Ended,
    Extents,
    FrontendList,
    HeldLocks,
    Listing,
    Managed,
    MovedItems,
    Overviewed,
    OwnershipsRenewed,
    Published,
    Purged,
    Refused,
    Released,
    Renewed,
    Replay,
    Result,
    Retracted,
    RetractedBatch,
    Scheduled,
    ScheduleList,
    Subscribed,
    SubscriptionList,
    Unaffiliated,
    Unlocked,
    Unsubscribed,
)
from frontends.errors import ERRORS
from frontends.xmpp import disco, errors
from frontends.xmpp import namespaces as ns
from frontends.xmpp.adhoc import admin, moves, pending
from frontends.xmpp.adhoc import schedules as adhoc_schedules
from frontends.xmpp.messages import deliveries, notifications, qos
from frontends.xmpp.pubsub import (
    approvals,
    log_options,
    node_config,
    paging,
    partition_options,
    payloads,
    schedules,
    selectors,
    subscription_lists,
)
from frontends.xmpp.pubsub.subscriptions import (
    BATCH,
    CREDIT,
    DELIVERED,
    DEPTH_FIELD,
    EXPIRE,
    GAP,
    KIND,
    PRESENCE,
    QOS,
    START,
    defaults,
)
from frontends.xmpp.stanzas import DescribedNode, Iq, MoveBatch, Question, View
from frontends.xmpp.xml import forms
from frontends.xmpp.xml.text import escape, escaped_name, moment, serialise

_ECHOED: Final = (f"{{{ns.PUBSUB}}}retract", f"{{{ns.PUBSUB}}}subscribe", f"{{{ns.QUEUEING}}}unlock")
_ECHO_BYTES: Final = 8_192
_BROWSE_BYTES: Final = 524_288
"""The size at which a browse stops early, so that servers pass the reply to the client."""


def result(iq: Iq, content: bytes) -> bytes:
    """Write a result with the request's addresses swapped, so that no frontend's own name shows (QX6, X9)."""
    return b"%b>%b</iq>" % (_head(iq, "result"), content) if content else b"%b/>" % _head(iq, "result")


def write_refused(iq: Iq, fault: MalformedRequest) -> bytes:
    """Write an error; it echoes the request as in XEP-0254's examples, but never a payload."""
    error = errors.write_error(errors.wire(fault), fault.detail, fault.wait_ms).encode()
    return b"%b>%b%b</iq>" % (_head(iq, "error"), _echo(iq, fault.problem), error)


def answer(question: Question, outcome: Result) -> bytes:
    """Write the reply to a question."""
    if isinstance(outcome, Refused):
        return write_refused(question.iq, MalformedRequest(outcome.problem, outcome.detail, outcome.wait_ms))
    match question.command, outcome:
        case ReadOutcome(), Ended(None):
            detail = "no end of such an item is kept, or not for you"
            return write_refused(question.iq, MalformedRequest(Problem.ITEM_NOT_FOUND, detail))
        case ManageSubscribers(node), Managed(failed) if failed:
            text = "the listed entries are unchanged, the others are done"
            return _write_unchanged(question.iq, subscription_lists.subscribers(node, failed), text)
        case Affiliate(node), Unaffiliated(detail, kept):
            return _write_unchanged(question.iq, subscription_lists.write_affiliations(node, kept), detail)
    return result(question.iq, _content(question, outcome))


def _content(question: Question, outcome: Result) -> bytes:  # noqa: C901, PLR0911, PLR0912  (one table)
    match question.command, outcome:
        case Stats(), Counted() if isinstance(question, DescribedNode):
            return disco.node_info(question.record, outcome, named=_names_node(question.iq))
        case (Retract() | RetractBatch() | Unlock(), Retracted() | RetractedBatch() | Unlocked()):
            return b""
        case PrepareMessage(_, msg_id), Done():
            return qos.write_received(msg_id)
        case Deliver(), Done():
            return b""
        case Publish(), Published() if question.view is View.NOTHING:
            return b""
        case Publish(node), Published(item_id, duplicate):
            return _write_published(node, item_id, duplicate=duplicate)
        case Renew(node, _, item_id), Renewed(token, deadline_ms):
            return _write_renewed(node, item_id, token, deadline_ms)
        case RenewOwnership(node), OwnershipsRenewed():
            return partition_options.ownerships_renewed(node, outcome)
        case ReadOutcome(node), Ended(ItemOutcome() as ended):
            return notifications.outcome(node, ended)
        case Locks(node), HeldLocks(locks):
            return _write_held(node, locks)
        case Subscribe(node), Subscribed():
            return _write_subscribed(node, outcome, question.iq)
        case SetSubscriptionOptions(node), Subscribed():
            return _options_set(node, outcome, question.iq)
        case Options(node), Subscribed():
            return _options(node, outcome)
        case Browse(), Browsed():
            return _write_browsed(question, question.command, outcome)
        case Read(node), Replay():
            return log_options.write_replay(node, outcome)
        case Partitions(node), Extents():
            return log_options.write_extents(node, outcome)
        case Subscriptions(_, own), SubscriptionList():
            return subscription_lists.write_own(own, outcome)
        case Affiliations(), AffiliationList():
            return subscription_lists.standings(outcome)
        case ListSubscribers(), SubscriptionList():
            return subscription_lists.write_list(question.command, outcome)
        case ListRequests(node), SubscriptionList(waiting):
            return approvals.write_requests(node, waiting)
        case ListPending(), Listing(nodes):
            return pending.choice(question.iq, nodes)
        case SendPending(), Done():
            return pending.write_sent(question.iq)
        case ListSchedules(), ScheduleList():
            if question.view is View.COMMAND:
                return adhoc_schedules.write_schedules(question.iq, question.command, outcome)
            return schedules.write_schedules(question.command, outcome)
        case (PutSchedule() | PauseSchedule(), Scheduled()):
            if question.view is View.COMMAND:
                return adhoc_schedules.write_changed(question.iq, question.command, outcome)
            return schedules.write_schedule(question.command.node, outcome)
        case RemoveSchedule(), Done():
            return (
                adhoc_schedules.write_removed(question.iq, question.command) if question.view is View.COMMAND else b""
            )
        case Overview(), Overviewed():
            return admin.write_nodes(question, question.command, outcome)
        case Configure(), Done() if question.view is View.COMMAND:
            return admin.write_configured(question, question.command)
        case (Frontends() | Disconnect(), FrontendList() | Disconnected()):
            return admin.write_frontends(question.iq, outcome)
        case Release(), Released():
            return admin.write_released(question, outcome)
        case MoveItems(), MovedItems() if isinstance(question, MoveBatch):
            return moves.progress(question, question.command, outcome)
        case Declare(), Declared(node):
            return f"<pubsub xmlns='{ns.PUBSUB}'><create node='{escape(node)}'/></pubsub>".encode()
        case Describe(), Described() if question.view is View.INFO:
            return disco.closed_node_info(outcome.record, named=_names_node(question.iq))
        case Describe(), Described():
            return _write_described(outcome, question.view)
        case Nodes(), Listing():
            return disco.service_items(question.iq, outcome)
        case Children(node), Listing(nodes):
            asked = node if _names_node(question.iq) else ""
            # At the node's address too, its children are nodes of the service.
            return disco.node_items(domain(bare_jid(question.iq.service)), asked, nodes)
        case (
            (Unsubscribe(), Unsubscribed())
            | (Purge(), Purged())
            | (ManageSubscribers(), Managed())
            | (Configure() | Affiliate() | Approve() | Associate() | Dissociate() | Delete() | Commit(), Done())
        ):
            return b""
    msg = f"{type(outcome).__name__} is no answer to {type(question.command).__name__}"
    raise TypeError(msg)


def _names_node(iq: Iq) -> bool:
    """Tell whether a request names its node, and is not at the node's address: its answer says the same (XEP-0030 §3.2)."""
    return any("node" in child.attrib for child in iq.element)


def _write_published(node: str, item_id: str, *, duplicate: bool) -> bytes:
    # A repeat that the node ignored is a success, and says so (X1).
    mark = f" xmlns:q='{ns.STANZAQ}' q:duplicate='true'" if duplicate else ""
    return (
        f"<pubsub xmlns='{ns.PUBSUB}'><publish node='{escaped_name(node)}'>"
        f"<item id='{escape(item_id)}'{mark}/></publish></pubsub>"
    ).encode()


def _write_renewed(node: str, item_id: str, token: int, deadline_ms: int) -> bytes:
    return (
        f"<renew xmlns='{ns.STANZAQ}' node='{escape(node)}'>"
        f"<item id='{escape(item_id)}' token='{token}' expires='{moment(deadline_ms)}'/></renew>"
    ).encode()


def _write_held(node: str, locks: tuple[Lock, ...]) -> bytes:
    inside = "".join(deliveries.lock(node, lock) for lock in locks)
    return f"<locks xmlns='{ns.STANZAQ}' node='{escape(node)}'>{inside}</locks>".encode()


def _write_unchanged(iq: Iq, kept: bytes, detail: str) -> bytes:
    """Write which entries of an owner's request stay unchanged (P26, XEP-0060 §8.8.2.4, §8.9.2.4)."""
    error = errors.write_error(ERRORS[Problem.NOT_ACCEPTABLE].xmpp, detail).encode()
    return b"%b>%b%b</iq>" % (_head(iq, "error"), kept, error)


def _write_subscribed(node: str, granted: Subscribed, iq: Iq) -> bytes:
    if granted.state is State.PENDING:
        return (
            f"<pubsub xmlns='{ns.PUBSUB}'><subscription {_subscription(node, granted)} subscription='pending'/></pubsub>"
        ).encode()
    expiry = f" expiry='{moment(granted.until_ms)}'" if granted.until_ms else ""
    return (
        f"<pubsub xmlns='{ns.PUBSUB}'><subscription {_subscription(node, granted)} subscription='subscribed'{expiry}/>"
        f"<options>{_write_options(granted, iq)}</options></pubsub>"
    ).encode()


def _options_set(node: str, granted: Subscribed, iq: Iq) -> bytes:
    """Write the options in force, which may be less than requested (XEP-0004 §3.1)."""
    about = _subscription(node, granted)
    return f"<pubsub xmlns='{ns.PUBSUB}'><options {about}>{_write_options(granted, iq)}</options></pubsub>".encode()


def _write_options(granted: Subscribed, iq: Iq) -> str:
    """Write the form of the granted options (Q9, XEP-0060 §6.3.7)."""
    fields = [forms.Field(CREDIT, (str(granted.credit),))]
    if forms.names(iq.element, DELIVERED.name):
        fields.append(DELIVERED)
    # A subscriber that requested no QoS gets the answer that XEP-0254 shows.
    if granted.qos is not Qos.UNACKNOWLEDGED:
        fields.append(forms.Field(QOS, (granted.qos.value,)))
    if granted.batch > 1:
        fields.append(forms.Field(BATCH, (str(granted.batch),)))
    # A reader is told its partitions (E11), its start, and whether older entries are lost (EX7).
    if granted.streams:
        fields.append(
            forms.Field(partition_options.PARTITION, tuple(str(stream.partition) for stream in granted.streams))
        )
        fields.append(forms.Field(START, tuple(f">{stream.offset}" for stream in granted.streams)))
        fields.append(forms.Field(GAP, tuple("1" if stream.gap else "0" for stream in granted.streams)))
    if granted.until_ms:
        fields.append(forms.Field(EXPIRE, (moment(granted.until_ms),)))
    fields += (*partition_options.write_granted(granted), *selectors.granted_field(granted), *_scope(granted))
    return forms.write_form("result", ns.PUBSUB_SUBSCRIBE_OPTIONS, fields)


def _options(node: str, granted: Subscribed) -> bytes:
    choices = tuple(member.value for member in SENT)
    fields = (
        forms.Field(CREDIT, (str(granted.credit),), "text-single", required=True),
        forms.Field(QOS, (granted.qos.value,), "list-single", choices=choices),
        forms.Field(EXPIRE, (moment(granted.until_ms) if granted.until_ms else PRESENCE,), "text-single"),
        forms.Field(BATCH, (str(granted.batch),), "text-single"),
        DELIVERED,
        *selectors.offered_field(granted),
        *partition_options.write_granted(granted),
        *_scope(granted),
    )
    form = forms.write_form("form", ns.PUBSUB_SUBSCRIBE_OPTIONS, fields)
    return f"<pubsub xmlns='{ns.PUBSUB}'><options {_subscription(node, granted)}>{form}</options></pubsub>".encode()


def _scope(granted: Subscribed) -> tuple[forms.Field, ...]:
    if granted.scope is None:
        return ()
    kind, depth = str(granted.scope).split(" ")
    kinds = tuple(member.value for member in SubscriptionType)
    return (forms.Field(KIND, (kind,), "list-single", choices=kinds), forms.Field(DEPTH_FIELD, (depth,), "text-single"))


def _subscription(node: str, granted: Subscribed) -> str:
    return f"node='{escape(node)}' jid='{escape(granted.jid)}' subid='{escape(granted.subid)}'"


def _write_browsed(question: Question, asked: Browse, found: Browsed) -> bytes:
    pieces: list[bytes] = []
    shown: list[Listed] = []
    size = 0
    for item in reversed(found.items) if asked.backwards else found.items:
        payload = payloads.listed_element(item.envelope)
        size += len(payload)
        if size > _BROWSE_BYTES and pieces:
            break
        head = f"<item id='{escape(item.item_id)}' publisher='{escape(item.publisher)}'>".encode()
        pieces.append(b"%b%b</item>" % (head, payload))
        shown.append(item)
    if asked.backwards:
        pieces.reverse()
        shown.reverse()
    page = ""
    if paging.asks_for_page(question.iq.element) or found.more or len(shown) < len(found.items):
        index = None if asked.after or asked.backwards else 0
        page = paging.write_page((str(shown[0].place), str(shown[-1].place)) if shown else None, found.count, index)
    head = f"<pubsub xmlns='{ns.PUBSUB}'><items node='{escape(asked.node)}'>".encode()
    return b"%b%b</items>%b</pubsub>" % (head, b"".join(pieces), page.encode())


def _write_described(described: Described, view: View | None) -> bytes:
    match view:
        case View.CONFIGURATION:
            return node_config.current(described)
        case View.AFFILIATIONS:
            return _affiliations(described.record)
        case View.DEFAULT_SUBSCRIPTION:
            return defaults(described.record.name, described.record.config)
        case View.INFO | View.NOTHING | View.RESULT_ONLY | View.COMMAND | None:
            msg = f"a node's record is no answer to {view}"
            raise TypeError(msg)
        case _:
            assert_never(view)


def _affiliations(record: NodeRecord) -> bytes:
    standings = sorted(record.affiliations.items())
    return subscription_lists.write_affiliations(
        record.name, [each for each in standings if each[1] is not Affiliation.NONE]
    )


def _head(iq: Iq, kind: str) -> bytes:
    # A request without `to` came to the service another way; a reply without `from` returns by it.
    sender = f" from='{escaped_name(iq.service)}'" if iq.service else ""
    return f"<iq type='{kind}' id='{escape(iq.id)}' to='{escaped_name(iq.sender)}'{sender}".encode()


def _echo(iq: Iq, problem: Problem) -> bytes:
    pubsub = next(iter(iq.element), None)
    action = None if pubsub is None else next((child for child in pubsub if child.tag in _ECHOED), None)
    if pubsub is None or action is None:
        return b""
    if problem is Problem.OPTIONS_REQUIRED:
        return _options_form(action)
    try:
        echo = serialise(pubsub)
    except MalformedRequest:
        return b""
    return echo if len(echo) <= _ECHO_BYTES else b""


def _options_form(subscribe: Element) -> bytes:
    """Write the requested subscription with the required form (Q5, Q6, Q7)."""
    about = f"jid='{escape(subscribe.get('jid', ''))}' node='{escape(subscribe.get('node', ''))}'"
    field = forms.Field(CREDIT, kind="text-single", required=True)
    form = forms.write_form("form", ns.PUBSUB_SUBSCRIBE_OPTIONS, (field,))
    return f"<pubsub xmlns='{ns.PUBSUB}'><subscribe {about}/><options {about}>{form}</options></pubsub>".encode()
