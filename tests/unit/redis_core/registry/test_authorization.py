"""Who may do what with a node (P3, P5, P6, P7), as a table."""

from typing import Any

import pytest

from broker.model import offsets
from broker.model.commands import (
    Affiliate,
    Approve,
    Bounce,
    Browse,
    Cancel,
    Complete,
    Configure,
    Confirm,
    Delete,
    Describe,
    ListSubscribers,
    Locks,
    ManageSubscribers,
    Options,
    Publish,
    Purge,
    Read,
    ReadOutcome,
    Renew,
    Retract,
    SendPending,
    SetSubscriptionOptions,
    Stats,
    Subscribe,
    Unlock,
    Unsubscribe,
)
from broker.model.items.qos import Qos, Stage
from broker.model.names import Jid, Partition
from broker.model.nodes.nodes import Affiliation, NodeRecord
from broker.model.nodes.options import AccessModel, NodeConfig, PublishModel
from broker.model.problems import Problem
from broker.redis_core.commands.internal import LogExtent, SubscribeLog
from broker.redis_core.registry.authorization import OUTCAST, accepting, visible
from broker.redis_core.registry.rows import refusal

ME, OTHER = Jid("me@x/1"), Jid("other@x/1")
COMMANDS: dict[str, Any] = {
    "publish": Publish("n", ME, None, b"", 5),
    "subscribe": Subscribe("n", ME, ME, 1),
    "adjust": SetSubscriptionOptions("n", ME, ME, "", 1),
    "options": Options("n", ME, ME, ""),
    "unsubscribe": Unsubscribe("n", ME, ME, ""),
    "retract": Retract("n", ME, "i"),
    "cancel": Cancel("n", ME, "i"),
    "complete": Complete("n", ME, "i"),
    "read outcome": ReadOutcome("n", ME, "i"),
    "unlock": Unlock("n", ME, "i"),
    "renew": Renew("n", ME, "i"),
    "locks": Locks("n", ME),
    "browse": Browse("n", ME, (), 5),
    "stats": Stats("n", ME),
    "list subscribers": ListSubscribers("n", ME),
    "manage subscribers": ManageSubscribers("n", ME, ()),
    "approve": Approve("n", ME, OTHER, "", allow=True),
    "send pending": SendPending("n", ME),
    "describe": Describe("n", ME, as_owner=False),
    "configure": Configure("n", ME, {}),
    "affiliate": Affiliate("n", ME, {}),
    "purge": Purge("n", ME),
    "delete": Delete("n", ME),
    "describe as owner": Describe("n", ME, as_owner=True),
}
OWNERS = {
    "configure", "affiliate", "purge", "delete", "describe as owner", "list subscribers", "manage subscribers", "approve",
    "send pending",
}  # fmt: skip
READING = {"subscribe", "browse", "stats"}


def allowed(standing: Affiliation, config: NodeConfig | None = None) -> set[str]:
    """Return what a JID of this affiliation may do."""
    record = NodeRecord("n", "i1", 1, config or NodeConfig(), {Jid("me@x"): standing})
    return {name for name, command in COMMANDS.items() if refusal(command, record) is None}


def test_matrix() -> None:
    """P3: the matrix of affiliations on an open node; scripts decide about single items."""
    everyone = COMMANDS.keys() - OWNERS - {"publish"}
    assert allowed(Affiliation.OWNER) == COMMANDS.keys()
    assert allowed(Affiliation.PUBLISHER) == everyone | {"publish"}
    assert allowed(Affiliation.PUBLISH_ONLY) == (everyone | {"publish"}) - READING
    assert allowed(Affiliation.MEMBER) == allowed(Affiliation.NONE) == everyone
    assert allowed(Affiliation.OUTCAST) == set()


@pytest.mark.parametrize("model", [AccessModel.WHITELIST, AccessModel.AUTHORIZE])
@pytest.mark.parametrize("standing", Affiliation)
def test_closed_nodes(standing: Affiliation, model: AccessModel) -> None:
    """P5, P6: on a closed node members, publishers and owners read, nobody else."""
    reads = allowed(standing, NodeConfig(access_model=model)) >= READING
    assert reads == (standing in {Affiliation.OWNER, Affiliation.PUBLISHER, Affiliation.MEMBER})


def test_approval() -> None:
    """P5: a subscription that only lacks an approval says so, and any other fault comes first."""
    record = NodeRecord("n", "i", 1, NodeConfig(access_model=AccessModel.AUTHORIZE), {})
    for command, problem in (
        (Subscribe("n", ME, ME, 1), Problem.APPROVAL_REQUIRED),
        (Subscribe("n", ME, ME, None), Problem.OPTIONS_REQUIRED),
        (Subscribe("n", ME, OTHER, 1), Problem.JID_MISMATCH),
        (SubscribeLog("n", ME, ME, 1, Qos.UNACKNOWLEDGED, "", 0), Problem.APPROVAL_REQUIRED),
        (SubscribeLog("n", ME, ME, 1, Qos.UNACKNOWLEDGED, "", 1), Problem.PARTITION_NOT_FOUND),
        (Browse("n", ME, (), 5), Problem.APPROVAL_REQUIRED),
    ):
        refused = refusal(command, record)
        assert refused and refused.problem is problem


@pytest.mark.parametrize("model", [PublishModel.OPEN, PublishModel.SUBSCRIBERS])
@pytest.mark.parametrize("subscribed", [False, True])
def test_publish_models(model: PublishModel, *, subscribed: bool) -> None:
    """P7: anybody but an outcast may publish, where subscribers do once the router has found the sender among them."""
    command = Publish("n", ME, None, b"", 5, subscribed=subscribed)
    for standing in Affiliation:
        record = NodeRecord("n", "i1", 1, NodeConfig(publish_model=model), {Jid("me@x"): standing})
        refused = refusal(command, record)
        publisher = standing in {Affiliation.OWNER, Affiliation.PUBLISHER, Affiliation.PUBLISH_ONLY}
        may = subscribed or model is PublishModel.OPEN or publisher
        if standing is Affiliation.OUTCAST:
            assert refused is OUTCAST
        else:
            assert (refused is None) is may and (refused is None or refused.problem is Problem.UNAVAILABLE)


def test_payload() -> None:
    """P14: a payload over the node's limit is refused with both numbers."""
    record = NodeRecord("n", "i", 1, NodeConfig(max_payload_bytes=4), {Jid("me@x"): Affiliation.OWNER})
    refused = accepting(COMMANDS["publish"], record)
    assert refused and refused.problem is Problem.PAYLOAD_TOO_BIG and "5" in refused.detail and "4" in refused.detail


def test_preconditions() -> None:
    """P18: a publish is refused when the node is configured otherwise, with the field's name."""
    record = NodeRecord("n", "i", 1, NodeConfig(), {Jid("me@x"): Affiliation.OWNER})
    for options, problem in (
        ({"pubsub#access_model": ("open",)}, None),
        ({"pubsub#access_model": ("whitelist",)}, Problem.PRECONDITION_NOT_MET),
        ({"pubsub#none": ("1",)}, Problem.NOT_ACCEPTABLE),
    ):
        refused = accepting(Publish("n", ME, None, b"", 5, options=options), record)
        assert (refused.problem if refused else None) is problem
        assert refused is None or next(iter(options)) in refused.detail


@pytest.mark.parametrize("standing", ["", *(member.value for member in Affiliation)])
def test_lists_of_nodes(standing: str) -> None:
    """P9: an outcast sees no node; only listed JIDs see a whitelist."""
    for model in ("", "open", "whitelist", "authorize"):
        hidden = standing == "outcast" or (model == "whitelist" and standing in {"", "none"})
        assert visible(standing, model) != hidden


def test_streams() -> None:
    """Q5, E7, E17: a queue's workers name their credit; a stream begins in a known partition, at its own offsets."""
    record = NodeRecord("n", "i", 1, NodeConfig(partitions=2), {})
    for asked, problem in (
        (Subscribe("n", ME, ME, None, group="g"), Problem.OPTIONS_REQUIRED),
        (Subscribe("n", ME, ME, 1), Problem.NOT_ACCEPTABLE),
    ):
        refused = refusal(asked, record)
        assert refused and refused.problem is problem

    def follow(partition: int, start: str, qos: Qos = Qos.UNACKNOWLEDGED) -> Problem | None:
        refused = refusal(SubscribeLog("n", ME, ME, 1, qos, start, partition), record)
        return refused.problem if refused else None

    offset = offsets.write_offset(record.partition(1), "5-0")
    assert follow(1, offset) is follow(1, f">{offset}") is follow(0, "@latest") is follow(0, "") is None
    assert follow(0, offset) is Problem.OFFSET_NOT_FOUND
    assert follow(2, "@latest") is Problem.PARTITION_NOT_FOUND
    assert follow(0, "@now") is Problem.OFFSET_INVALID
    assert follow(0, "@latest", Qos.ASSURED) is Problem.OPTIONS_INVALID
    closed = NodeRecord("n", "i", 1, NodeConfig(access_model=AccessModel.WHITELIST), {})
    for command in (
        SubscribeLog("n", ME, ME, 1, Qos.UNACKNOWLEDGED, "", 0),
        LogExtent("n", ME, 0),
        Read("n", ME, 0, "5", 1),
    ):
        refused = refusal(command, closed)
        assert refused and refused.problem is Problem.CLOSED_NODE


def test_for_others() -> None:
    """P11, P12: nobody acts for another JID."""
    record = NodeRecord("n", "i", 1, NodeConfig(), {})
    for command in (
        Subscribe("n", ME, OTHER, 1),
        SetSubscriptionOptions("n", ME, OTHER, "", 1),
        Options("n", ME, OTHER, ""),
        Unsubscribe("n", ME, OTHER, ""),
    ):
        refused = refusal(command, record)
        # XEP-0060 §6.1.3.1, §6.2.3.3, §6.3.4.1.
        problem = Problem.JID_MISMATCH if isinstance(command, Subscribe) else Problem.FORBIDDEN
        assert refused and refused.problem is problem


def test_bounce_of_an_earlier_life() -> None:
    """A bounce or a confirmation of a deleted node's delivery does not affect the new node."""
    record = NodeRecord("n", "new", 1, NodeConfig(), {})
    assert refusal(Bounce(ME, Partition("n", "new"), "1-0", 1, gone=False), record) is None
    for stale in (
        Bounce(ME, Partition("n", "old"), "1-0", 1, gone=False),
        Confirm(ME, Partition("n", "old"), "1-0", 1, Stage.ASSURED),
    ):
        refused = refusal(stale, record)
        assert refused and refused.problem is Problem.LOCK_LOST


def test_shared_owner() -> None:
    """Two nodes share an owner also where a domain owns one, and an account of it the other."""

    def owned(*owners: str, member: str = "") -> NodeRecord:
        rights = dict.fromkeys(map(Jid, owners), Affiliation.OWNER) | {Jid(member): Affiliation.MEMBER}
        return NodeRecord("n", "i", 1, NodeConfig(), rights)

    by_domain, by_account, other = owned("x"), owned("me@x"), owned("eve@y", member="me@x")
    assert by_domain.shares_owner(by_account) and by_account.shares_owner(by_domain)
    assert not other.shares_owner(by_domain) and not by_account.shares_owner(other)
