"""Messages: those that publish, those that deliver, and what comes back. Must not know requests."""
