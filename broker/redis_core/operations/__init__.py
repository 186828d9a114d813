"""One call per operation: turns a command into script arguments, and a reply into a result. Pure; knows no connection.

A call with a `row` is batched: commands of one batch share the fixed arguments, and each has its own row and result.
"""
