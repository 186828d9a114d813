"""Fences: a store refuses the write of a job whose lock is older than one it has seen.

One module for each store, which is imported when a connection to it is given. They know tokens and the drivers' connections,
and must not know workers or transports.
"""

from stanzaq.fencing.fence import Fence, Stop, stop
from stanzaq.fencing.mark import TABLE, Mark

__all__ = ["TABLE", "Fence", "Mark", "Stop", "stop"]
