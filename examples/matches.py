"""A custom environment: whoever takes the last match wins.

python main.py --env-name examples.matches:Matches-v0 --model Qwen/Qwen2.5-0.5B-Instruct
"""

import gymnasium
from gymnasium.spaces import Text


class Matches(gymnasium.Env):
    observation_space = action_space = Text(1000)
    actions = ("take one", "take two", "take three")
    system_prompt = "Two players take one to three matches. Whoever takes the last one wins."

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(5, 16))
        return f"{self.left} matches are left.", {}

    def step(self, action):
        self.left -= 1 + self.actions.index(action)
        won = self.left <= 0
        self.left -= 0 if won else int(self.np_random.integers(1, 4))  # the opponent's turn
        text = f"{max(0, self.left)} matches are left."
        return text, float(won), self.left <= 0, False, {"success": won}


gymnasium.register("Matches-v0", Matches, max_episode_steps=15)
