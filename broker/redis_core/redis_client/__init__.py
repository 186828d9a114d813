"""Access to Redis: connections, clusters, sentinels, loading of operations. Must not know what an operation means."""
