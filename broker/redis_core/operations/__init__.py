"""One call per operation: command -> arguments of its script, reply -> result. Pure; knows no connection.

A call that has a `row` is batched: commands of one batch share the fixed arguments and each has its own row and result.
"""
