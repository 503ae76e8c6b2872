"""The memory of agent programs: the prompt has exactly the messages that the program sent."""

from common.chat import Chat


class VerbatimMemory:
    """Shows only the messages of the current observation; the program has its own memory."""

    def __init__(self, length: int):
        pass  # the program decides how many turns it sends

    def reset(self, observation) -> None:
        """Begin an episode."""
        self.observation = observation

    def update(self, step) -> None:
        """Take the program's next request. After a fault there is none."""
        if not step.fault:
            self.observation = step.observation

    def messages(self) -> Chat:
        """Return the messages of the program's request."""
        now = self.observation
        return Chat([], [], list(now.messages), now.template, now.sampling)
