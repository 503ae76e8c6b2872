"""The games of GEM, as `gem:GuessTheNumber-v0-easy`. They take many turns each.

GEM's mathematics and code come from data sets of the hub, and its reasoning-gym has a prefix of
its own, so they are left out.
"""

import logging

import gymnasium

from envs.ecosystems import TEXT, answer_with, check_name

ROOT = logging.getLogger()
quiet = list(ROOT.handlers), ROOT.level
import gem  # noqa: E402
from gem.envs.registration import ENV_REGISTRY  # noqa: E402

ROOT.handlers[:], ROOT.level = quiet  # gem makes all libraries of the program log to the terminal
GAMES = "game:"  # gem's own names of them begin with it


class Gem(gymnasium.Env):
    """The rewards are gem's: 1 for a win, -0.1 for what is no move, which ends the game."""

    observation_space = action_space = TEXT

    def __init__(self, name: str):
        games = [known.removeprefix(GAMES) for known in ENV_REGISTRY if known.startswith(GAMES)]
        check_name(name.removeprefix(GAMES), games, "game")
        self.game = gem.make(GAMES + name.removeprefix(GAMES))

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        self.rules, info = self.game.reset(seed)
        return self._seen("The game begins.", info)

    def step(self, action: str):
        move = action if "\\boxed" in action else f"\\boxed{{{action}}}"
        said, reward, over, at_limit, info = self.game.step(move)
        over = bool(over or at_limit)  # the rules name the limit, so it is an end like others
        text, seen = self._seen(said.strip() or "The game goes on.", {} if over else info)
        return text, float(reward), over, False, seen | {"success": over and reward >= 1}

    def _seen(self, said: str, info: dict) -> tuple[str, dict]:
        """Return what was said over the board or the question, which gem calls the suffix."""
        text = f"{said}\n\n{info.get('suffix', '')}".strip()
        return text, dict(system=self.rules, instruction=answer_with("your move"), kept=said)
