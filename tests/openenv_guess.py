"""An environment as users of OpenEnv write it: `openenv:openenv_guess:GuessEnvironment`."""

import random

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class Guess(Action):
    number: int = Field(..., description="your guess, from 1 to 8")


class Answer(Observation):
    text: str


class GuessEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs) -> Answer:
        self.number = random.Random(seed).randint(1, 8)
        return Answer(text=f"An {('even', 'odd')[self.number % 2]} number from 1 to 8?")

    def step(self, action: Guess, timeout_s=None, **kwargs) -> Answer:
        if action.number == self.number:
            return Answer(text="right", done=True, reward=1.0)
        return Answer(text="higher" if action.number < self.number else "lower", reward=0.0)

    @property
    def state(self) -> State:
        return State()


class Move(Action):
    """An action with two fields."""

    direction: str
    steps: int = Field(1, description="how far")


class WalkEnvironment(GuessEnvironment):
    """Pays the steps to the east."""

    def step(self, action: Move, timeout_s=None, **kwargs) -> Answer:
        return Answer(text=action.direction, reward=action.steps * (action.direction == "east"))
