"""The publisher: sends items, waits for results, and keeps in a file what cannot be sent yet."""
