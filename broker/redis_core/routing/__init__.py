"""A node's partitions together: where a command goes, and how answers of several become one."""
