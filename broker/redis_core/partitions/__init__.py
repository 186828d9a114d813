"""One partition of a node: batches of commands, calls and their answers. Must not know other partitions."""
