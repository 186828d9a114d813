"""Views of queues and messages as values, and their form in JSON and Atom. Must not know requests."""
