"""One partition of a node: batches of commands, script calls and their answers. Must not know other partitions."""
