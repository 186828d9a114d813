"""Brings subscribers' credit to the partitions that need it. Must not know who subscribes."""
