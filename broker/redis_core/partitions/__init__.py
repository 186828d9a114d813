"""One partition of a node: how its commands gather, run in order, and are answered. Must not know other partitions."""
