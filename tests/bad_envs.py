"""Foreign environments with bad observations; importing this module registers them."""

import gymnasium
from gymnasium.spaces import Text


class Says(gymnasium.Env):
    """Shows `first` and then always `later`, whatever the response."""

    observation_space = action_space = Text(1000)

    def __init__(self, first, later="Go on."):
        self.first, self.later = first, later

    def reset(self, *, seed=None, options=None):
        return self.first, {}

    def step(self, action):
        return self.later, 1.0, False, False, {}


MEGABYTE = "x y " * 250_000
STRANGE = "🙂👩‍👩‍👧 \u202eשלום مرحبا\u202c \0\x1b[2J <|im_end|> \ud83d \udcff"
for name, options in {
    "Nothing": {"first": ""},
    "Number": {"first": 3},
    "Megabyte": {"first": MEGABYTE},
    "MegabyteLater": {"first": "Hello.", "later": MEGABYTE},
    "Strange": {"first": STRANGE, "later": STRANGE},
}.items():
    gymnasium.register(f"{name}-v0", Says, max_episode_steps=5, kwargs=options)
