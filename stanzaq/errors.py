"""The library's exceptions. Must not know transports."""


class StanzaqError(Exception):
    """A request failed; the message is one sentence that says why and what to do.

    `condition` is the name of the service's error (RFC 6120 §8.3.3), empty if it sent none.
    """

    def __init__(self, message: str, condition: str = "") -> None:
        """Keep the sentence and the condition."""
        super().__init__(message)
        self.condition = condition


class Fenced(StanzaqError):  # noqa: N818  (what has happened to the job, as its handler sees it)
    """A store has refused a job's write: a job with a newer lock has been there. Nothing of it was written."""
