"""The paper's memory: the last n turns, each with its observation, reasoning and action.

`messages()` is the prompt of the next turn: the system message, the kept turns from old to new and
the current observation. Between the end of an episode and `reset` it is the prompt at the final
observation, from which V may bootstrap.

Environments with tools or users bring messages of their own (`Observation.messages`). There, a turn
is the agent's message with the answer to it, so that no window parts a call from its result. The
messages that began the episode hold the task, so they always stay.
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
        self.turns.clear()  # another episode plays elsewhere: old turns would mislead
        self.observation = observation
        self.opening, self.latest = list(observation.messages), []  # no window drops the opening

    def update(self, step) -> None:
        """Remember a turn and the observation that followed it."""
        if step.fault:
            return  # the environment failed and has shown nothing new
        if self.opening:
            if self.latest:
                self.turns.append(self.latest)  # the newest turn is always shown, also with n = 0
            self.latest = [self.remembered(step), *step.observation.messages]
        else:
            self.turns.append([self.past(), self.remembered(step)])
        self.observation = step.observation

    def past(self) -> dict:
        """Return the current observation as later prompts show it."""
        # Not its whole text: in Crafter, say, an old inventory would only cost tokens.
        return {"role": "user", "content": f"Observation:\n{self.observation.kept}"}

    def remembered(self, step) -> dict:
        """Return the agent's own message as later prompts show it."""
        return step.reply or {"role": "assistant", "content": step.kept_response}

    def messages(self) -> Chat:
        """Return the prompt of the next turn as chat messages."""
        now, turns = self.observation, list(self.turns)
        head = [{"role": "system", "content": now.system}] if now.system else []
        if self.opening:
            return Chat([*head, *self.opening], turns, self.latest, now.template, now.sampling)
        question = f"Current Observation:\n{now.text}\n\n{now.instruction}"
        asked = [{"role": "user", "content": question}]
        return Chat(head, turns, asked, now.template, now.sampling)
