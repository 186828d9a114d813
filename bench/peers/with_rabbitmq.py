"""RabbitMQ: one process with 50 messages at once, confirmed publishes of persistent messages, acknowledgement after the job."""

import asyncio
import os
import signal
import sys

import jobs
from aio_pika import DeliveryMode, Message, connect
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

QUEUE_TYPE = os.environ["PEERS_QUEUE_TYPE"]


async def work(channel: AbstractChannel, queue: AbstractQueue) -> None:
    """Do nothing with each message until SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)

    async def handle(message: AbstractIncomingMessage) -> None:
        async with message.process():
            jobs.end()

    await channel.set_qos(prefetch_count=jobs.UNDER_WAY)
    tag = await queue.consume(handle)
    await ended.wait()
    await queue.cancel(tag)


async def publish(channel: AbstractChannel, queue: AbstractQueue) -> None:
    """Publish jobs."""

    def one(payload: str) -> asyncio.Future[object]:
        message = Message(payload.encode(), delivery_mode=DeliveryMode.PERSISTENT)
        return channel.default_exchange.publish(message, routing_key=queue.name)

    await jobs.publish(int(sys.argv[2]), one)


async def main() -> None:
    """Publish or work."""
    async with await connect(os.environ["PEERS_AMQP"]) as connection:
        channel = await connection.channel()
        arguments = {"x-queue-type": QUEUE_TYPE}
        queue = await channel.declare_queue(QUEUE_TYPE, durable=True, arguments=arguments)
        await (work if sys.argv[1] == "work" else publish)(channel, queue)


asyncio.run(main())
