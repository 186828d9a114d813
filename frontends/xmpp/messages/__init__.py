"""Messages that publish, messages that deliver, and their errors. Must not know requests."""
