"""The queue core: Redis and the rules of the queue. Must not know any protocol or door."""
