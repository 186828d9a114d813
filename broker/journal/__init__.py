"""The journal of what happened to items, for whoever reads it later: knows its records, and nothing else of the queue."""
