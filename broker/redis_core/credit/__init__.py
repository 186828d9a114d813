"""How the credit of a subscriber comes to the partitions that want it. Must not know who subscribes."""
