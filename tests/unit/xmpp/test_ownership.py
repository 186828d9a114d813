"""Ownership on the wire: requests, and notices to owners."""

from xml.etree import ElementTree as ET

import pytest

from broker.model.items.items import Owned, OwnershipGained, OwnershipLost
from broker.model.names import Jid
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import OwnershipsRenewed, Subscribed
from frontends.xmpp import namespaces as ns
from frontends.xmpp.messages.notifications import Events
from frontends.xmpp.pubsub.partition_options import (
    EPOCH,
    FENCE,
    GROUP,
    PARTITION,
    OwnershipRequest,
    ownerships_renewed,
    parse_partitions,
    write_granted,
)
from frontends.xmpp.xml.forms import Field

_OWNED = Owned(3, "g<>", 2**63 - 1, 1_795_232_955_075_012, 5, 8)
_WORKER = Jid("w@x/1")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, OwnershipRequest()),
        ({GROUP: ("g",)}, OwnershipRequest(group="g")),
        ({PARTITION: ("0",)}, OwnershipRequest((0,))),
        ({PARTITION: ("7", "1023", "7", "0")}, OwnershipRequest((0, 7, 1023))),
        ({PARTITION: ("1",), EPOCH: ("0",)}, OwnershipRequest((1,), epoch=0)),
        (
            {PARTITION: ("1",), EPOCH: (str(2**63 - 1),), GROUP: ("$default",)},
            OwnershipRequest((1,), "$default", 2**63 - 1),
        ),
    ],
)
def test_requests(fields: dict[str, tuple[str, ...]], expected: OwnershipRequest) -> None:
    """E7, EX12: partitions are numbers, each once; an epoch is any number of 63 bits."""
    assert parse_partitions(fields) == expected


@pytest.mark.parametrize(
    "fields",
    [
        {PARTITION: ()},
        *({GROUP: values} for values in ((), ("",), ("a b",), ("g", "h"), ("x" * 256,), ("a\n",))),
        *(
            {PARTITION: ("0",), EPOCH: values}
            for values in ((), ("",), ("-1",), ("one",), (str(2**63),), ("1", "2"), ("9" * 100_000,), ("1.0",))
        ),
        {EPOCH: ("1",)},
        {EPOCH: ("1",), GROUP: ("g",)},
    ],
)
def test_nonsense(fields: dict[str, tuple[str, ...]]) -> None:
    """E7, EX12: anything else is refused before anybody is asked."""
    with pytest.raises(MalformedRequest) as caught:
        parse_partitions(fields)
    assert caught.value.problem is Problem.OPTIONS_INVALID


def test_granted() -> None:
    """E11: the answer names the partitions and of each the epoch and the fence; a shared subscription has none."""
    other = Owned(4, "g", 1, 2, 5, 8)
    assert list(write_granted(Subscribed(_WORKER, "1", 5, group="g", owned=(_OWNED, other)))) == [
        Field(GROUP, ("g",)),
        Field(PARTITION, ("3", "4")),
        Field(EPOCH, (str(2**63 - 1), "1")),
        Field(FENCE, ("1795232955075012", "2")),
    ]
    assert list(write_granted(Subscribed(_WORKER, "1", 5))) == []


def test_what_owners_are_told() -> None:
    """E28, EX16: gains, losses and heartbeats name node, partition, group, epoch and fence alike."""
    about = {"node": "j'", "partition": "3", "group": "g<>", "epoch": str(2**63 - 1), "fence": "1795232955075012"}
    expires = {"expires": "1970-01-01T00:00:00.005Z", "credit": "8"}
    events = Events("q.x", "run", legacy_unlock_ns=False)
    lost = OwnershipLost("j'", _WORKER, 3, "g<>", 2**63 - 1, 1_795_232_955_075_012, "stolen")
    for notice, tag, more in (
        (OwnershipGained("j'", _WORKER, _OWNED), "owned", expires),
        (lost, "lost", {"reason": "stolen"}),
    ):
        message = ET.fromstring(events.notice(notice))
        assert message.get("to") == _WORKER
        assert message[0][0].tag == f"{{{ns.STANZAQ}}}{tag}"
        assert message[0][0].attrib == about | more
    renewed = ET.fromstring(ownerships_renewed("j'", OwnershipsRenewed((_OWNED,))))
    assert (renewed.tag, renewed.get("node")) == (f"{{{ns.STANZAQ}}}renew", "j'")
    assert [each.attrib for each in renewed] == [about | expires]


@pytest.mark.parametrize("values", [("",), ("a",), ("-1",), ("1024",), ("1", "x"), ("\u0661",), ("1 2",)])
def test_no_such_partition(values: tuple[str, ...]) -> None:
    """E7: an impossible partition is an unknown one."""
    with pytest.raises(MalformedRequest) as caught:
        parse_partitions({PARTITION: values})
    assert caught.value.problem is Problem.PARTITION_NOT_FOUND
