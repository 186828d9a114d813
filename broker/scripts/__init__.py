"""Lua made callable: reads headers, expands includes, runs. Knows what a script file looks like, not what any script does."""
