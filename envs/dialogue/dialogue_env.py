"""An environment in which the agent talks with a user, who answers, rewards and ends the dialogue.

A turn is one message of the agent and the user's answer. The user is a method in Python, or any
chat client, such as `envs.dialogue.chat_user`. docs/dialogues.md has an example of each.
"""

import string

import gymnasium
from gymnasium.spaces import Text

from common.chat import THINK, after_thought
from envs import contract

MISSING = "is missing: a dialogue must define it"


class Dialogue(gymnasium.Env):
    """Base class. A subclass defines `open` and `user`, and may set the attributes.

    system: the agent's system message
    max_turns: messages of the agent after which a dialogue is truncated; --max-episode-steps
        overrides it
    pardon: the user's answer to a response that is empty or an unclosed thought; such a response
        costs `format_penalty`
    replayable: whether equal seeds and equal responses give equal answers; if not, a resumed run
        drops the current dialogue and begins the next one
    """

    tasks = ()
    speaks_messages = True  # a response is passed on as it is, not parsed for an ACTION
    system = "You talk with a user."
    max_turns = 16
    replayable = True
    pardon = "I did not hear you. Please say it again."
    observation_space = Text(max_length=65536, min_length=0, charset=string.printable)
    action_space = Text(max_length=65536, min_length=0, charset=string.printable)

    def __init__(self, max_episode_steps: int | None = None, format_penalty: float = 0.1):
        self.max_turns = max_episode_steps or self.max_turns
        self.format_penalty = format_penalty

    def open(self, seed: int | None) -> str:
        """Begin a dialogue; return the user's first message. `self.np_random` is already seeded."""
        raise contract.breach(self, "open", MISSING)

    def user(self, history: list[dict]) -> tuple[str, float, bool]:
        """Answer the agent; return (text, reward, whether the dialogue is over).

        history: chat messages, alternately of the roles user and assistant, from the user's first
            message to the agent's last one. The agent's thoughts are left out.
        """
        raise contract.breach(self, "user", MISSING)

    def success(self, reward: float) -> bool:
        """Return whether a dialogue that the user ended is a success. reward: of its last turn"""
        return reward > 0

    def episode_metrics(self) -> dict[str, float]:
        """Return metrics of the dialogue that just ended, logged as `rollout/<name>`."""
        return {}

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed, options=options)
        self.turns = 0
        text = self.open(seed)
        contract.check_observation(self, "open", text)
        self.history = [{"role": "user", "content": text}]
        return text, self._info(text)

    def step(self, response: str):
        response = str(response)  # the pool passes a subclass of str; messages hold plain texts
        self.turns += 1
        message, begin = without_thought(response)
        if message:
            text, reward, over = self._answer(message)
        else:
            text, reward, over = self.pardon, -self.format_penalty, False
        truncated = self.turns >= self.max_turns and not over
        info = self._info(text) | {
            "reply": {"role": "assistant", "content": response},
            "kept_response": response,
            "action": message,
            "action_at": begin,
            "valid": bool(message),
            "success": bool(over and self.success(reward)),
        }
        if over or truncated:
            info["metrics"] = self.episode_metrics()
        return text, float(reward), over, truncated, info

    def _answer(self, message: str) -> tuple[str, float, bool]:
        """Let the user answer a message. BrokenContract: `user` returned something else."""
        self.history.append({"role": "assistant", "content": message})
        answer = self.user([dict(message) for message in self.history])
        contract.check_count(self, "user", answer, "(text, reward, over)")
        text, reward, over = answer
        contract.check_observation(self, "user", text)
        contract.check_reward(self, "user", reward)
        contract.check_truth(self, "user", "over =", over)
        self.history.append({"role": "user", "content": text})
        return text, reward, over

    def _info(self, text: str) -> dict:
        return {
            "system": self.system,
            "instruction": "",
            "kept": text,
            "messages": [{"role": "user", "content": text}],
            "replayable": self.replayable,
        }


def without_thought(response: str) -> tuple[str, int]:
    """Return the text after the last </think> and where it begins.

    If there is no such text, or it has an unclosed thought, return ("", len(response)).
    """
    begin = after_thought(response)
    message = response[begin:].strip()
    if not message or THINK in message:
        return "", len(response)
    return message, response.index(message, begin)
