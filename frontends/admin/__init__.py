"""`stanzaq node` and `stanzaq item`: the queue as an administrator works on it from a shell."""
