"""Links: how each is attached, and what serves it: producers, consumers of queues and of logs, requests."""
