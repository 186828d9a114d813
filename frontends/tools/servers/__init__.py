"""Servers run privately as child processes: a Redis and an ejabberd. Must not know what the project uses them for."""
