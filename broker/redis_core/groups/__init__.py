"""Who owns which partition, alone or in a group. Must not know how a partition works."""
