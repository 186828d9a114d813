"""No garbage collection: what must not keep a payload until then is tested by `sys.getrefcount`."""

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage meanwhile, and log nothing: pytest keeps what is logged, with its faults."""
    gc.disable()
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()
