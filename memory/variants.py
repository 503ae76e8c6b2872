"""Memories to compare the window with: each changes one thing in `WindowMemory`."""

from common.chat import Chat, in_history
from common.plugins import UserError
from memory.window import WindowMemory


class ActionMemory(WindowMemory):
    """The last n turns with their executed actions only; reasoning is never shown again."""

    def remembered(self, step) -> dict:
        if step.reply is None:
            return {"role": "assistant", "content": f"ACTION: {step.action}"}
        # Without a call, the whole message is the action, except for its reasoning.
        if step.reply.get("tool_calls"):
            return step.reply | {"content": ""}
        return step.reply | {"content": in_history(step.reply["content"], thoughts=False)}


class PeriodicMemory(WindowMemory):
    """A history that is cleared every n >= 1 turns: turn t shows the last t mod n turns."""

    def __init__(self, length: int):
        if length < 1:
            raise UserError(f"memory length must be >= 1 for a periodic memory, got {length}")
        super().__init__(length)

    def update(self, step) -> None:
        super().update(step)
        if len(self.turns) == self.length:
            self.turns.clear()


class FullMemory(WindowMemory):
    """All turns of the episode, whatever n is; `memory.render` drops the oldest at the limit.

    Prompts only grow: past turns stay unchanged, and the instruction is in the system message, not
    in each question. So a prompt begins with the previous prompt and its response, and such turns
    can be trained in one row (`storage.merged`).
    """

    def __init__(self, length: int):
        super().__init__(length=10**9)  # more turns than an episode has

    def past(self) -> dict:
        return {"role": "user", "content": f"Current Observation:\n{self.observation.text}"}

    def messages(self) -> Chat:
        chat, now = super().messages(), self.observation
        head, latest = chat.head, chat.now
        if not self.opening:
            task = "\n\n".join(filter(None, (now.system, now.instruction)))
            head = [{"role": "system", "content": task}] if task else []
            latest = [self.past()]
        return BlockChat(head, chat.turns, latest, chat.template, chat.sampling)


class BlockChat(Chat):
    """Drops several turns at a time, so that the prompts in between extend one another."""

    def kept(self, n: int) -> int:
        # If each prompt dropped one turn, none would begin with the previous one. The block size is
        # a power of 2, at most half of n, so that it rarely changes with n.
        block = 1 << max(0, n.bit_length() - 2)
        return n - (n - len(self.turns)) % block
