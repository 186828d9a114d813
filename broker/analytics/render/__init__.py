"""Writes the figures of a report to files and the console. Must not know where figures come from."""
