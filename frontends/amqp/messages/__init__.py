"""A message and what becomes of it: sections, properties, deliveries, outcomes. Must not know links."""
