"""The schema of the journal, for its readers. Must not know the rest of the queue."""
