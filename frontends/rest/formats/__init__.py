"""What bodies look like: JSON, Atom, batches, payloads and times. Must not know HTTP."""
