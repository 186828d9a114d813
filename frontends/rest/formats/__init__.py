"""What is shown, as values, and how JSON and Atom write it. Must not know requests."""
