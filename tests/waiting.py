"""How long a test waits for what must come.

A wait that ends costs nothing, so the bound only has to tell a hang from a busy machine. What a test says about time itself,
it compares with a time of the same run.
"""

from typing import Final

PATIENCE_SECONDS: Final = 120.0
"""Less than the time that pytest gives a test, so that the report shows the wait."""
