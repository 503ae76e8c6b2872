"""The reasoning of earlier turns in later prompts: kept or left out (--history-thinking)."""

from dataclasses import replace

from common.chat import in_history
from common.wrapper import Wrapper


class ThoughtMemory(Wrapper):
    """A memory around another one, which gets each response as later prompts may show it.

    keep: show the reasoning, and close it where the response limit cut it; False: leave it out
    """

    def __init__(self, memory, keep: bool):
        super().__init__(memory)
        self.keep = keep

    def update(self, step) -> None:
        """Remember a turn."""
        reply = step.reply
        if reply:
            reply = reply | {"content": in_history(reply["content"], self.keep)}
        response = in_history(step.kept_response, self.keep)
        self.inner.update(replace(step, kept_response=response, reply=reply))
