"""Ownership of partitions, by single consumers and by groups. Must not know how a partition works."""
