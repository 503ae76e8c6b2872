"""Errors that end a run. `run.exit` turns them into one line and an exit code."""


class RunError(RuntimeError):
    """The run cannot go on. The message says why, and everything saved before is whole."""


class OtherRankFailed(RunError):
    """Another rank cannot go on, and says why."""
