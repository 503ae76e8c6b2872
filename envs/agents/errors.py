"""The error of a request of an agent program that cannot be answered."""

OVER = "this episode is over"  # the answer to late requests; lines that have it are not printed


class Refused(ValueError):
    """A request that cannot be answered. status, code: those of OpenAI's API"""

    def __init__(self, message: str, status: int = 400, code: str = "unsupported_value"):
        super().__init__(message)
        self.status, self.code = status, code
