"""The journal's schema as data: all that analytics may know of the queue."""
