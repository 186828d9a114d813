"""What counts as an attempt, over XMPP: a worker that dies with one item that kills it, and one that returns items untried."""

from tests.journeys.client import STANZAQ, Client, Delivery
from tests.journeys.conftest import Join

_TEN = [f"i{number}" for number in range(10)]


async def _held(worker: Client, count: int) -> dict[str, Delivery]:
    found = [await worker.next(Delivery) for _ in range(count)]
    return {delivery.item: delivery for delivery in found}


async def test_nine_of_ten_are_innocent(join: Join) -> None:
    """Issue 48.3: of ten items one kills its worker three times, which told that it had begun: the others lose nothing."""
    owner = await join()
    node = await owner.queue({"stanzaq#max_deliveries": "3"})
    for item in _TEN:
        assert (await owner.publish(node, item)).error == ""
    for attempt in (1, 2, 3):
        worker = await join()
        worker.present()
        assert (await worker.subscribe(node, 10)).error == ""
        held = await _held(worker, 10)
        assert {item: delivery.attempt for item, delivery in held.items()} == dict.fromkeys(_TEN, 1) | {"i7": attempt}
        row = f"<renew id='i7' token='{held['i7'].token}' begun='1'/>"
        assert (await worker.ask(f"<settle xmlns='{STANZAQ}' node='{node}'>{row}</settle>")).error == ""
        await worker.close()
    worker = await join()
    assert (await worker.subscribe(node, 10)).error == ""
    assert {item: each.attempt for item, each in (await _held(worker, 9)).items()} == {
        item: 1 for item in _TEN if item != "i7"
    }


async def test_untried(join: Join) -> None:
    """An item that comes back untried is at its first attempt, however often; one that is asked for says so."""
    owner, worker = await join(), await join()
    node = await owner.queue({"stanzaq#max_deliveries": "2"})
    assert (await owner.publish(node, "a")).error == ""
    assert (await worker.subscribe(node, 1)).error == ""
    for _ in range(6):
        delivery = await worker.next(Delivery)
        assert delivery.attempt == 1 and "reply" not in delivery.lock.attrib
        hint = f"<hint xmlns='{STANZAQ}' untried='1'/>"
        item = f"<item id='a' token='{delivery.token}'/>"
        unlock = f"<unlock xmlns='urn:xmpp:pubsub:queueing:0' node='{node}'>{item}{hint}</unlock>"
        pubsub = f"<pubsub xmlns='http://jabber.org/protocol/pubsub'>{unlock}</pubsub>"
        assert (await worker.ask(pubsub)).error == ""
