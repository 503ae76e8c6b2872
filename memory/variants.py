"""Memories to compare the window with: each changes one thing in `WindowMemory`."""

from memory.messages import tidy
from memory.window import WindowMemory


class ActionMemory(WindowMemory):
    """The last n turns with their executed actions only; reasoning is never shown again."""

    def remembered(self, step) -> dict:
        if step.reply is None:
            return {"role": "assistant", "content": f"ACTION: {step.action}"}
        # A message without a call is an action as a whole, except for its reasoning.
        said = "" if step.reply.get("tool_calls") else tidy(step.reply["content"], thoughts=False)
        return step.reply | {"content": said}


class PeriodicMemory(WindowMemory):
    """A history that is cleared every n >= 1 turns: turn t shows the last t mod n turns."""

    def __init__(self, length: int):
        if length < 1:
            raise ValueError(f"memory length must be >= 1 for a periodic memory, got {length}")
        super().__init__(length)

    def update(self, step) -> None:
        super().update(step)
        if len(self.turns) == self.length:
            self.turns.clear()


class FullMemory(WindowMemory):
    """All turns of the episode, whatever n is; `memory.chat` drops the oldest at the limit."""

    def __init__(self, length: int):
        super().__init__(length=10**9)  # more turns than an episode has
