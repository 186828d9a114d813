"""Benchmarks, each next to the native ceiling of the same server in the same run. Product code must not know them."""
