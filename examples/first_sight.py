"""A memory of one's own: the last n turns, and what was seen first in the episode.

python main.py --env-name babyai-pickup --memory examples.first_sight:FirstSight
"""

from memory.window import WindowMemory


class FirstSight(WindowMemory):
    """What `WindowMemory` shows, with the first observation in the system message of every turn."""

    def reset(self, observation) -> None:
        super().reset(observation)
        self.first = observation.kept

    def messages(self) -> list[dict]:
        chat = super().messages()
        if not chat or chat[0]["role"] != "system":
            return chat
        told = f"{chat[0]['content']}\n\nAt the beginning you saw:\n{self.first}"
        return [{"role": "system", "content": told}, *chat[1:]]
