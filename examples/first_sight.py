"""A custom memory: the last n turns, and the episode's first observation.

python main.py --env-name babyai-pickup --memory examples.first_sight:FirstSight
"""

from memory.window import WindowMemory


class FirstSight(WindowMemory):
    """A `WindowMemory` that adds the episode's first observation to the system message."""

    def reset(self, observation) -> None:
        super().reset(observation)
        self.first = observation.kept

    def messages(self) -> list[dict]:
        chat = super().messages()
        if not chat or chat[0]["role"] != "system":
            return chat
        text = f"{chat[0]['content']}\n\nAt the beginning you saw:\n{self.first}"
        return [{"role": "system", "content": text}, *chat[1:]]
