"""The contract every environment keeps: a gymnasium.Env with text in and text out.

`TextEnv` turns a model's response into an action (`envs.actions`), adds the format penalty, makes
the reward binary where the paper does, and counts the turns of the time limit. A subclass only
says how its world starts and moves. `Observation` and `Step` are what memories and storage see.
"""

import string
from dataclasses import dataclass, field

import gymnasium
from gymnasium.spaces import Text

from envs import actions

THINK_ACT = """What will you do next? Please respond in the following format:
    THINK: step-by-step reasoning
    ACTION: One valid action from the allowed set."""


@dataclass(frozen=True)
class Observation:
    """What the agent may know before a turn."""

    text: str  # everything it sees now
    kept: str  # what a memory keeps of it in later turns
    system: str  # the system message of this turn: the task, the actions
    instruction: str  # how to answer; follows the current observation


@dataclass(frozen=True)
class Step:
    """What one turn did. `terminated` and `truncated` are never merged."""

    response: str  # the model's text
    said: str  # the same with the executed action in the place of an invalid one
    action: str  # executed
    valid: bool
    action_at: int  # where in the response its ACTION marker begins; its length if there is none
    reward: float  # penalty included
    terminated: bool
    truncated: bool
    success: bool  # the environment's own word
    observation: Observation  # what followed; the final one where the episode ended
    first: Observation | None = None  # of the next episode, where this one ended
    metrics: dict = field(default_factory=dict)  # floats of a finished episode, e.g. achievements
    fault: str = ""  # one line where the environment failed: that cut the episode
    episode: int = 0  # number of the environment's episode, from 0
    seed: int = 0  # that it was reset with
    number: int = 0  # of this turn in the episode, from 1

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


class TextEnv(gymnasium.Env):
    """Base of the families. A subclass defines `family`, `_start`, `_act` and `system_prompt`.

    format_penalty: added to the reward of a turn whose response holds no valid action
    binary_reward: any positive environment reward becomes 1 (the paper's BabyAI and BabaIsAI)
    max_episode_steps: turns until `truncated`
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}
    observation_space = Text(max_length=65536, min_length=0, charset=string.printable)
    action_space = Text(max_length=65536, min_length=0, charset=string.printable)
    family: str  # a key of envs.actions.FAMILIES
    instruction: str = THINK_ACT

    def __init__(self, max_episode_steps: int, binary_reward: bool, format_penalty: float = 0.1):
        self.max_episode_steps = max_episode_steps
        self.binary_reward = binary_reward
        self.format_penalty = format_penalty
        self.render_mode = "rgb_array"  # drawn only when render() is called
        self.steps = 0

    def _start(self) -> str:
        """Begin an episode with self.np_random; return the observation text."""
        raise NotImplementedError

    def _act(self, action: str) -> tuple[str, float, bool, bool]:
        """Execute a valid action; return (observation text, reward, terminated, success)."""
        raise NotImplementedError

    def system_prompt(self) -> str:
        raise NotImplementedError

    def kept(self, text: str) -> str:
        """What later turns are shown of the observation `text`."""
        return text

    def episode_metrics(self) -> dict[str, float]:
        """Figures of the episode that just ended, logged as `rollout/<name>`."""
        return {}

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed, options=options)
        self.steps = 0
        text = self._start()
        return text, self._info(text)

    def step(self, response: str):
        action, valid = actions.parse(self.family, response)
        text, reward, terminated, success = self._act(action)
        self.steps += 1
        truncated = self.steps >= self.max_episode_steps
        if self.binary_reward and reward > 0:
            reward = 1.0
        if not valid:
            reward -= self.format_penalty
        info = self._info(text) | dict(
            action=action,
            valid=valid,
            success=success,
            action_at=actions.split(response),
            said=response if valid else actions.with_action(response, action),
        )
        if terminated or truncated:
            info["metrics"] = self.episode_metrics()
        return text, float(reward), terminated, truncated, info

    def _info(self, text: str) -> dict:
        return dict(system=self.system_prompt(), instruction=self.instruction, kept=self.kept(text))
