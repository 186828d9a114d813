"""The stored records of nodes and JIDs, and their rules. Must not know how partitions work."""
