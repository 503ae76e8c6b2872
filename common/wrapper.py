"""An object around another one: an engine that is measured, a memory that forgets thoughts."""


class Wrapper:
    """Has all attributes of `inner`. A subclass defines those that it changes."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name: str):
        return getattr(self.inner, name)  # called only where the subclass has no such attribute
