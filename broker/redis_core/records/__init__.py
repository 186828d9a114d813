"""What is kept of nodes and of JIDs, and what may be done by it. Must not know partitions' insides."""
