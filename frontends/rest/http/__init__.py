"""HTTP itself: connections, heads, fields, codings and conditions. Must not know queues."""
