"""Private servers as child processes: Redis and ejabberd. Must not know what the project uses them for."""
