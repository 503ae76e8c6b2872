"""Errors that end a run. `run.exit` turns them into one line and an exit code."""


class RunError(RuntimeError):
    """The run cannot go on. The message gives the reason; everything saved before is intact."""


class OtherRankFailed(RunError):
    """Another rank cannot go on. That rank reports the reason."""
