"""The memory of agent programs: the prompt is what the program sent, message for message."""

from common.chat import Chat


class VerbatimMemory:
    """Shows the messages of the current observation alone; the program remembers by itself."""

    def __init__(self, length: int):
        pass  # `length` turns are for memories that choose

    def reset(self, observation) -> None:
        """Begin an episode."""
        self.observation = observation

    def update(self, step) -> None:
        """Take over what the program asks next; after a fault it asks nothing new."""
        if not step.fault:
            self.observation = step.observation

    def messages(self) -> Chat:
        """Return the messages of the program's request."""
        now = self.observation
        return Chat([], [], list(now.messages), now.template, now.sampling)
