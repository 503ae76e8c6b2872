"""The paper's memory: the last n turns, each with its observation, reasoning and action.

`messages()` is the prompt of the next turn: the system message, the kept turns from old to new and
the current observation. Between the end of an episode and `reset` it is the prompt at the final
observation, from which V may bootstrap. Older turns are forgotten, so memory use is constant.

Environments with tools or users bring messages of their own (`Observation.messages`). A turn is
then the agent's message with what answered it, so that no window parts a call from its result. The
messages that began the episode always stay, because they hold the task.
"""

from collections import deque

from common.chat import Chat


class WindowMemory:
    """The last n = `length` turns; with n = 0 only the current observation."""

    def __init__(self, length: int):
        self.length = length
        self.turns: deque[list[dict]] = deque(maxlen=length)  # the messages of each

    def reset(self, observation) -> None:
        """Begin an episode and forget the last one."""
        self.turns.clear()
        self.observation = observation
        self.opening, self.latest = list(observation.messages), []

    def update(self, step) -> None:
        """Remember a turn and the observation that followed it."""
        if self.opening:
            if self.latest:
                self.turns.append(self.latest)
            self.latest = [self.remembered(step), *step.observation.messages]
        else:
            self.turns.append([self.past(), self.remembered(step)])
        self.observation = step.observation

    def past(self) -> dict:
        """Return the current observation as later prompts show it."""
        return {"role": "user", "content": f"Observation:\n{self.observation.kept}"}

    def remembered(self, step) -> dict:
        """Return the agent's own message as later prompts show it."""
        return step.reply or {"role": "assistant", "content": step.said}

    def messages(self) -> Chat:
        """Return the prompt of the next turn as chat messages."""
        now = self.observation
        system = [{"role": "system", "content": now.system}] if now.system else []
        if self.opening:
            return Chat([*system, *self.opening], list(self.turns), self.latest, now.template)
        question = f"Current Observation:\n{now.text}\n\n{now.instruction}"
        return Chat(system, list(self.turns), [{"role": "user", "content": question}], now.template)
