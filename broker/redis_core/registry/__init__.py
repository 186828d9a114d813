"""What is known of each command: one row, and the functions that rows name."""
