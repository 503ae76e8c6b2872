"""The puzzles of reasoning-gym, as `reasoning-gym:chain_sum`: an episode is one question.

The episode's seed makes the question, so there are as many questions as seeds.
"""

import gymnasium
import reasoning_gym
from reasoning_gym.factory import DATASETS

from envs.ecosystems import TEXT, CannotMake, answer_with, check_name

RIGHT = 0.99  # a right answer's score may be rounded down


class ReasoningGym(gymnasium.Env):
    """The reward is the dataset's own score of the answer, from 0 to 1."""

    observation_space = action_space = TEXT

    def __init__(self, name: str):
        check_name(name, DATASETS, "data set")
        if name == "composite":
            raise CannotMake("it mixes other data sets and asks nothing itself; name one of them")
        self.name = name

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        if seed is None:
            seed = int(self.np_random.integers(2**31))
        self.data = reasoning_gym.create_dataset(self.name, seed=seed, size=1)
        self.entry = self.data[0]
        return self.entry["question"], self._info()

    def step(self, action: str):
        try:
            score = float(self.data.score_answer(action, self.entry))
        except Exception:  # some datasets raise on answers that they cannot parse
            score = 0.0
        text = f"The score is {score:g}. A right answer: {self.entry['answer']}"
        return text, score, True, False, self._info() | {"success": score >= RIGHT}

    def _info(self) -> dict:
        system = "You answer one question. Only what follows ACTION: is judged."
        return dict(system=system, instruction=answer_with("the answer and nothing else"))
