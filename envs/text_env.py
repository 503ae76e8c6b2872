"""The contract that every environment keeps: a gymnasium.Env with text in and text out.

`TextEnv` finds the action in a model's response (`envs.actions`), applies the format penalty, makes
the reward binary where the paper does, and counts turns up to the time limit. A subclass lists its
actions and says how its world starts and moves; `envs.games.toy` is the shortest example. Memories
and storage see `Observation` and `Step`.
"""

import functools
import re
import string
from collections.abc import Callable, Collection
from copy import deepcopy
from dataclasses import dataclass, field

import gymnasium
from gymnasium.spaces import Text

from common.chat import Sampling
from envs.actions import all_phrases, find_action, split, with_action

THINK_ACT = """What will you do next? Please respond in the following format:
    THINK: step-by-step reasoning
    ACTION: One valid action from the allowed set."""


@dataclass(frozen=True)
class Observation:
    """What the agent may know before a turn."""

    text: str  # everything that it sees now
    kept: str  # the part that a memory keeps for later turns
    system: str  # system message of this turn: the task and the actions
    instruction: str  # how to answer; follows the current observation
    # What came into the conversation with this turn, as chat messages of any roles: tool, user, ...
    # If there are any, they take the place of `text` and `instruction` in prompts.
    messages: tuple[dict, ...] = ()
    template: dict = field(default_factory=dict)  # arguments of the chat template: tools, ...
    sampling: Sampling = Sampling()  # how the response to it is sampled
    replayable: bool = True  # whether equal seeds and equal responses lead here again


@dataclass(frozen=True)
class Step:
    """What one turn did. `terminated` and `truncated` are never merged."""

    response: str  # the model's text
    kept_response: str  # what memory shows of it: the executed action replaces an invalid one
    action: str  # the action that was executed
    valid: bool  # whether the response named it
    action_at: int  # where the response's ACTION marker begins; its length if there is none
    reward: float  # includes the format penalty
    terminated: bool
    truncated: bool
    success: bool  # in the environment's own judgement
    observation: Observation  # what followed; the final one if the episode ended
    first: Observation | None = None  # start of the next episode, if this one ended
    metrics: dict = field(default_factory=dict)  # figures of a finished episode
    fault: str = ""  # one line about the failure that cut the episode, if one did
    episode: int = 0  # index of the episode among this environment's, from 0
    seed: int = 0  # seed with which the episode began
    number: int = 0  # number of this turn in the episode, from 1
    previous_text: str = ""  # of the observation that the response answers
    previous_digest: str = ""  # hash of this text and of its messages
    reply: dict | None = None  # `kept_response` as a chat message, if it has more than a content

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


class TextEnv(gymnasium.Env):
    """Base class. A subclass sets the attributes, and defines `_start`, `_act`, `system_prompt`.

    max_episode_steps: number of turns after which an episode is truncated
    format_penalty: subtracted from the reward of a turn whose response names no action
    """

    family: str  # name of the subclass's module
    tasks: Collection[str] = ()  # if there are any, the constructor takes one of them first
    actions: tuple[str, ...]  # in the order of the underlying game
    default_action: str  # runs in place of an invalid one
    near_misses: dict[str, list[str]] = {}  # action -> other phrases, see `actions.all_phrases`
    named_objects: re.Pattern | None = None  # may follow a verb, as in "pick up the key"
    names_actions = True  # a response names one of `actions`, or is invalid
    binary_reward = False  # True turns positive rewards into 1 (the paper: BabyAI and BabaIsAI)
    instruction = THINK_ACT
    # name in braces in a user's own prompts -> function of the environment that returns its text
    prompt_fields: dict[str, Callable] = {"actions": lambda env: ", ".join(env.actions)}

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}
    observation_space = Text(max_length=65536, min_length=0, charset=string.printable)
    action_space = Text(max_length=65536, min_length=0, charset=string.printable)

    def __init__(self, max_episode_steps: int, format_penalty: float = 0.1):
        self.max_episode_steps = max_episode_steps
        self.format_penalty = format_penalty
        self.render_mode = "rgb_array"  # a frame is drawn only when render() is called
        self.steps = 0

    def _start(self) -> str:
        """Begin an episode with self.np_random; return the observation text."""
        raise NotImplementedError

    def _act(self, action: str) -> tuple[str, float, bool, bool]:
        """Execute one of `actions`; return (observation text, reward, terminated, success)."""
        raise NotImplementedError

    def system_prompt(self) -> str:
        """Return the system message of this turn: the task and the actions."""
        raise NotImplementedError

    def kept(self, text: str) -> str:
        """Return what later turns show of the observation `text`."""
        return text

    def episode_metrics(self) -> dict[str, float]:
        """Return figures of the episode that just ended, logged as `rollout/<name>`."""
        return {}

    @classmethod
    @functools.cache  # one table per class
    def phrases(cls) -> dict[str, str]:
        return all_phrases(cls.actions, cls.near_misses)

    @classmethod
    def parse(cls, response: str) -> tuple[str, bool]:
        """Return the action that a response names and True, or the default action and False."""
        action = find_action(response, cls.phrases(), cls.named_objects)
        return (cls.default_action, False) if action is None else (action, True)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed, options=options)
        self.steps = 0
        text = self._start()
        return text, self._info(text)

    def step(self, response: str):
        action, valid = self.parse(response)
        text, reward, terminated, success = self._act(action)
        self.steps += 1
        truncated = self.steps >= self.max_episode_steps
        if self.binary_reward and reward > 0:
            reward = 1.0
        if not valid:
            reward -= self.format_penalty
        info = self._info(text) | executed(response, action, valid) | {"success": success}
        if terminated or truncated:
            info["metrics"] = self.episode_metrics()
        return text, float(reward), terminated, truncated, info

    def _info(self, text: str) -> dict:
        return {
            "system": self.system_prompt(),
            "instruction": self.instruction,
            "kept": self.kept(text),
        }


def executed(response: str, action: str, valid: bool) -> dict:
    """Return the part of a step's info that says what became of the response; see `Step`."""
    kept = response if valid else with_action(response, action)
    return dict(action=action, valid=valid, action_at=split(response), kept_response=kept)


def begin(env: gymnasium.Env, seed: int) -> Observation:
    """Reset an environment."""
    return observation_of(*env.reset(seed=seed))


def act(env: gymnasium.Env, response: str) -> Step:
    """Let an environment take a turn."""
    return step_of(response, *env.step(response))


def step_of(response: str, text: str, reward, terminated, truncated, info: dict) -> Step:
    """Make a Step of a response and of what `env.step` returned for it."""
    return Step(
        response=response,
        kept_response=info["kept_response"],
        action=info["action"],
        valid=bool(info["valid"]),
        action_at=int(info["action_at"]),
        reward=float(reward),
        terminated=bool(terminated),
        truncated=bool(truncated),
        success=bool(info["success"]),
        observation=observation_of(text, info),
        metrics={str(name): float(x) for name, x in info.get("metrics", {}).items()},
        reply=deepcopy(info.get("reply")),
    )


def observation_of(text: str, info: dict) -> Observation:
    """Make an Observation of its text and of the `info` that came with it.

    Messages are copied: the environment may change its own dicts when the episode goes on.
    """
    return Observation(
        text,
        kept=info["kept"],
        system=info["system"],
        instruction=info["instruction"],
        messages=tuple(deepcopy(list(info.get("messages", ())))),
        template=deepcopy(dict(info.get("template", {}))),
        sampling=info.get("sampling", Sampling()),
        replayable=bool(info.get("replayable", True)),
    )
