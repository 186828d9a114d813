"""One row for each command, and the functions that rows name."""
