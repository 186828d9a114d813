"""What a caller of the library may have to catch. Must not know transports."""


class StanzaqError(Exception):
    """What was asked for cannot be done: one sentence that says what is wrong and what to do.

    `condition` is the name of the error that the service answered (RFC 6120 §8.3.3), empty when it answered none.
    """

    def __init__(self, message: str, condition: str = "") -> None:
        """Keep the sentence and the condition."""
        super().__init__(message)
        self.condition = condition
