"""How each kind of command calls its operation, and how the reply becomes a result. Pure; knows no connection.

A call with a `row` is batched: commands of one batch share the fixed arguments, and each has its own row and result.
"""
