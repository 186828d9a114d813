"""Lends the credit of a collection's subscribers to the queues below it. Must not know how items are locked."""
