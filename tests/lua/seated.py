"""Subscriptions in several partitions of one node, made as the core makes them."""

from collections.abc import Sequence

from tests.lua.driver import Queue


def seated(parts: Sequence[Queue], jid: str, credit: int) -> str:
    """Subscribe to a node: begin a count in the bank, sit down everywhere else, settle; gives the count's name."""
    bank, *others = parts
    born = str(bank.subscribe(jid, credit).rows[0][3])
    lent = sum(queue.sit(jid, born)[1] for queue in others)
    assert bank.settle(jid, born, lent).words == ["ok"]
    return born


def parted(parts: Sequence[Queue], jid: str) -> list[int]:
    """Give what of a subscriber's credit lies in each partition."""
    return [queue.credit(jid) for queue in parts]
