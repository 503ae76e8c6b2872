"""A scripted program, in a file of its own: its workers need not import torch."""

import gymnasium
from gymnasium.spaces import Text

from common.chat import Sampling

TEXT = Text(1000)


class Script(gymnasium.Env):
    """Asks as the script of its seed (from 1) says: t is a turn that is trained, u a call that is
    not. The answer to call k (from 0) pays 2^k, the last one ends the episode, "raise" fails.
    With the answer "for 2" the reward belongs to the second call."""

    observation_space = action_space = TEXT

    def __init__(self, *scripts: str):
        self.scripts = scripts

    def reset(self, *, seed=None, options=None):
        self.script, self.k = self.scripts[(seed - 1) % len(self.scripts)], 0
        return self._asked()

    def step(self, response):
        if response == "raise":
            raise KeyError("lost")
        reward, self.k = 2.0**self.k, self.k + 1
        text, info = self._asked()
        facts = dict(kept_response=response, action=response, valid=response != "bad", action_at=0)
        if response.startswith("for "):
            facts["earlier"] = ((int(response.split()[1]), reward),)
        end = self.k == len(self.script)
        return text, reward, end, False, info | facts | dict(success=end)

    def _asked(self):
        kind = (self.script + "t")[self.k]
        sampling = Sampling(extra={"top_p": 0.5} if kind == "u" else {})
        text = f"call {self.k}"
        info = dict(system="", instruction="", kept=text, sampling=sampling)
        return text, info | dict(messages=[{"role": "user", "content": text}])


class Elsewhere(Script):
    """Fails in its second call when it is played again. folder: tells that it was played"""

    def __init__(self, folder, *scripts: str):
        super().__init__(*scripts)
        self.played = folder / "played"

    def step(self, response):
        if self.k == 1 and self.played.exists():
            raise KeyError("lost")
        return super().step(response)
