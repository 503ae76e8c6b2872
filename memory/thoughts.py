"""The reasoning of earlier turns in later prompts: kept or left out (--history-thinking)."""

from dataclasses import replace

from common.chat import Chat, in_history


class ThoughtMemory:
    """A memory around another one, which gets each response as later prompts may show it.

    keep: show the reasoning, and close it where the response limit cut it; False: leave it out
    """

    def __init__(self, memory, keep: bool):
        self.memory, self.keep = memory, keep

    def reset(self, observation) -> None:
        """Begin an episode."""
        self.memory.reset(observation)

    def update(self, step) -> None:
        """Remember a turn."""
        reply = step.reply
        if reply:
            reply = reply | {"content": in_history(reply["content"], self.keep)}
        response = in_history(step.kept_response, self.keep)
        self.memory.update(replace(step, kept_response=response, reply=reply))

    def messages(self) -> Chat:
        """Return the prompt of the next turn as chat messages."""
        return self.memory.messages()
