"""What leaves a partition and must arrive elsewhere: dead letters, moved items, replies, ends of parents."""
