"""The way to Redis: connections, clusters and sentinels, how operations are loaded. Must not know what an operation means."""
