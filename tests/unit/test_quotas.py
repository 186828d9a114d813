"""Quotas as values: how they are read and stored, which hold for an owner, and how much of them is used."""

import json

import pytest

from broker.model.names import Jid
from broker.model.nodes.quotas import Quota, QuotaStatus, counts_for, find_quotas
from broker.model.problems import MalformedRequest

WHOLE = Quota(1, 5, 2, 3, "4/m")


def test_reads_and_stores() -> None:
    """What is read is stored and read again."""
    texts = {"nodes": "1", "partitions": "5", "items": "2", "bytes": "3", "publish_rate": "4/m"}
    assert Quota.read(texts) == WHOLE == Quota.parse(str(WHOLE))
    assert WHOLE.measures and not Quota(publish_rate="1/s").measures
    assert Quota.read({"items": "0"}).limits_by_name() == {"items": 0} and not Quota(nodes=1).limits_publishes


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("items", "-1"),
        ("items", ""),
        ("bytes", "1.5"),
        ("bytes", "1K"),
        ("nodes", "9" * 17),
        ("publish_rate", "1/d"),
        ("publish_rate", "0/s"),
        ("publish_rate", ""),
        ("queues", "1"),
    ],
)
def test_bad_input(name: str, text: str) -> None:
    """A wrong value names its field."""
    with pytest.raises(MalformedRequest, match=name):
        Quota.read({name: text})
    with pytest.raises(MalformedRequest, match=name):
        Quota.parse(json.dumps({name: text}))


def test_an_empty_one() -> None:
    """A quota without a limit is refused: it would hide the default one."""
    with pytest.raises(MalformedRequest, match="limits something"):
        Quota.read({})


def test_which_holds() -> None:
    """An owner's own quota or the default one, and its domain's; of a JID without a local part it is one."""
    known = {"default": Quota(1), "a@x": Quota(2), "x": Quota(3)}
    assert find_quotas(known, Jid("a@x")) == {"a@x": Quota(2), "x": Quota(3)}
    assert find_quotas(known, Jid("b@y")) == {"b@y": Quota(1)}
    assert find_quotas(known, Jid("x")) == {"x": Quota(3)}
    assert find_quotas({}, Jid("a@x")) == {}
    assert find_quotas(known, Jid("a@default")) == {"a@default": Quota(1)}, "no quota of the domain of that name"
    assert counts_for("x", Jid("a@x")) and counts_for("a@x", Jid("a@x"))
    assert not counts_for("x", Jid("a@y.x")) and not counts_for("x", None)


def test_share() -> None:
    """The share is of the limit that is used most; a limit of 0 is used up, and without a limit there is none."""
    assert QuotaStatus("x", Quota(10, 8, 4), 5, 2, 3).share == 0.75
    assert QuotaStatus("x", Quota(items=0), 5, 5, 0).share == 1.0
    assert QuotaStatus("x", Quota(publish_rate="1/s"), 5, 5, 3).share is None
    assert QuotaStatus("default", Quota(1)).share is None
