"""The twin of examples/webhooks.py, with Dramatiq.

$ dramatiq webhooks --processes 1 --threads 100
$ python webhooks.py anna http://127.0.0.1:8000/hook first second third
"""

import sys
import uuid

import dramatiq
import httpx
from dramatiq.brokers.redis import RedisBroker
from dramatiq.rate_limits import ConcurrentRateLimiter, WindowRateLimiter
from dramatiq.rate_limits.backends import RedisBackend

dramatiq.set_broker(RedisBroker(url="redis://localhost"))
limits = RedisBackend(url="redis://localhost")
client = httpx.Client(timeout=10)


class RefusedError(Exception):
    pass


@dramatiq.actor(max_retries=9, min_backoff=1_000, max_backoff=21_600_000, throws=RefusedError, time_limit=30_000)
def deliver(customer: str, url: str, event: str, id: str) -> None:
    share = ConcurrentRateLimiter(limits, f"share:{customer}", limit=5, ttl=60_000)
    rate = WindowRateLimiter(limits, f"rate:{customer}", limit=10, window=1)
    try:
        with share.acquire(), rate.acquire():
            answer = client.post(url, json=event, headers={"Idempotency-Key": id})
    except dramatiq.RateLimitExceeded:
        # A retry would count as one that failed.
        deliver.send_with_options(args=(customer, url, event, id), delay=1_000)
        return
    if answer.is_client_error and answer.status_code != 429:
        raise RefusedError(f"{customer}: {answer.status_code} {answer.reason_phrase}")
    answer.raise_for_status()


if __name__ == "__main__":
    customer, url, *events = sys.argv[1:]
    for event in events:
        deliver.send(customer, url, event, uuid.uuid4().hex)
