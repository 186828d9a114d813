"""The queue core: knows Redis and the rules of the queue, knows no protocol and no door."""
