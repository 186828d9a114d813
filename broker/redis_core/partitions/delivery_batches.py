"""Batches of deliveries: which deliveries of one call go to the door together. Pure; must not know what a door sends.

Nothing waits for a batch to fill.
"""

from collections.abc import Sequence
from typing import Final

from broker.model.items.items import Delivery

BYTES: Final = 65_536
"""The most bytes of envelopes in a batch of several items: XMPP servers bound stanzas."""


def batch_deliveries(handed: Sequence[Delivery]) -> list[Sequence[Delivery]]:
    """Return batches for one subscription each, within its option and `BYTES`, each in the place of its first delivery."""
    batches: list[Sequence[Delivery]] = []
    filling: dict[tuple[object, ...], tuple[list[Delivery], int]] = {}
    for delivery in handed:
        if delivery.batch == 1:
            batches.append((delivery,))
            continue
        to = (delivery.subscriber, delivery.stage, delivery.collection, delivery.subid, delivery.message)
        batch, size = filling.get(to, ([], 0))
        size += len(delivery.envelope)
        if not batch or len(batch) >= delivery.batch or size > BYTES:
            batch, size = [], len(delivery.envelope)
            batches.append(batch)
        batch.append(delivery)
        filling[to] = batch, size
    return batches
