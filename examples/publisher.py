"""A publisher in ten lines. Run it twice: the queue ignores the second item, which has the same id.

$ STANZAQ_PASSWORD=secret python publisher.py
"""

import asyncio

from stanzaq import Publisher


async def main() -> None:
    url, address = "xmpp://publisher@localhost", "127.0.0.1:5222"
    async with Publisher(url, service="queue.localhost", address=address, tls="disabled") as publisher:
        await publisher.publish("jobs", {"file": "cat.png"}, id="cat.png")


asyncio.run(main())
