"""The paper's memory: the last n turns, each with its observation, reasoning and action.

`messages()` is the prompt of the next turn: the system message, the kept turns from old to new and
the current observation. Between the end of an episode and `reset` it is the prompt at the final
observation, from which V may bootstrap. Older turns are forgotten, so memory use is constant.
"""

from collections import deque


class WindowMemory:
    """The last n = `length` turns; with n = 0 only the current observation."""

    def __init__(self, length: int):
        self.length = length
        self.turns = deque(maxlen=length)  # (user text, assistant text)
        self.observation = None

    def reset(self, observation) -> None:
        """Begin an episode and forget the last one."""
        self.turns.clear()
        self.observation = observation

    def update(self, step) -> None:
        """Remember a turn and the observation that followed it."""
        self.turns.append((f"Observation:\n{self.observation.kept}", self.remembered(step)))
        self.observation = step.observation

    def remembered(self, step) -> str:
        """Return what later prompts show of the agent's own words."""
        return step.said

    def messages(self) -> list[dict[str, str]]:
        """Return the prompt of the next turn as chat messages."""
        now = self.observation
        messages = [{"role": "system", "content": now.system}]
        for observed, said in self.turns:
            messages.append({"role": "user", "content": observed})
            messages.append({"role": "assistant", "content": said})
        question = f"Current Observation:\n{now.text}\n\n{now.instruction}"
        return [*messages, {"role": "user", "content": question}]
