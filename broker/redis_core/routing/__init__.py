"""Routes commands to the partitions of a node and merges their answers."""
