"""The command `stanzaq`, and the two commands of the library: `worker` and `publish`."""
