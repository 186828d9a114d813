"""Links: how each is attached, and its handler: producers, consumers of queues and logs, requests."""
