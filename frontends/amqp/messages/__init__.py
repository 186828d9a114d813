"""Messages and their outcomes: sections, properties, deliveries. Must not know links."""
