"""The record of a subscription that waits for approval, also as earlier versions wrote it."""

from dataclasses import replace

import pytest

from broker.model.commands import Subscribe
from broker.model.items.qos import Qos
from broker.model.names import Jid
from broker.model.nodes.tree import Scope, SubscriptionType
from broker.redis_core.records.pending_requests import decode, encode

_ME = Jid("worker@example.org/a")


@pytest.mark.parametrize(
    "asked",
    [
        Subscribe("jobs", _ME, _ME, 5),
        Subscribe("jobs", _ME, _ME, None, start="@earliest", partitions=(0, 2)),
        Subscribe("jobs", _ME, _ME, 5, Qos.ASSURED, group="g", epoch=3, until_ms=7),
        Subscribe(
            "uk",
            _ME,
            _ME,
            5,
            scope=Scope(SubscriptionType.ITEMS, None),
            selector="color = 'red'\n OR \"a-b\" LIKE '- %'",
        ),
    ],
)
def test_reads_back(asked: Subscribe) -> None:
    """P5: an approved subscription is the requested one, with its selector (issue 9)."""
    assert decode(asked.node, _ME, encode(asked)) == replace(asked, again=True)


def test_of_earlier_versions() -> None:
    """A record from before collections and selectors has neither."""
    plain = Subscribe("jobs", _ME, _ME, 5, again=True)
    assert (
        decode("jobs", _ME, "5 unacknowledged - - - - 0")
        == decode("jobs", _ME, "5 unacknowledged - - - - 0 -")
        == plain
    )
