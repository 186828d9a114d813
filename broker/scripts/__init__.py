"""Makes the Lua files callable: reads their headers and packages them for Redis. Must not know what any operation does."""
