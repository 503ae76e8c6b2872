"""The games of GEM, as `gem:GuessTheNumber-v0-easy`. They take many turns each.

GEM's mathematics and code are left out because they download datasets from the hub, and its
reasoning-gym because that library has an adapter of its own.
"""

import logging

import gymnasium

from envs.ecosystems import TEXT, answer_with, check_name

# Importing gem makes every library log to the terminal; the lines around the import undo this.
root_logger = logging.getLogger()
handlers, level = list(root_logger.handlers), root_logger.level
import gem  # noqa: E402
from gem.envs.registration import ENV_REGISTRY  # noqa: E402

root_logger.handlers[:], root_logger.level = handlers, level
PREFIX = "game:"  # of games in gem's registry


class Gem(gymnasium.Env):
    """The rewards are gem's: 1 for a win, and -0.1 for an invalid move, which ends the game."""

    observation_space = action_space = TEXT

    def __init__(self, name: str):
        name = name.removeprefix(PREFIX)
        games = [known.removeprefix(PREFIX) for known in ENV_REGISTRY if known.startswith(PREFIX)]
        check_name(name, games, "game")
        self.game = gem.make(PREFIX + name)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        self.rules, info = self.game.reset(seed)
        return self._observe("The game begins.", info)

    def step(self, action: str):
        move = action if "\\boxed" in action else f"\\boxed{{{action}}}"
        message, reward, over, at_limit, info = self.game.step(move)
        over = bool(over or at_limit)  # the rules name the limit, so reaching it is no truncation
        text, info = self._observe(message.strip() or "The game goes on.", {} if over else info)
        return text, float(reward), over, False, info | {"success": over and reward >= 1}

    def _observe(self, message: str, info: dict) -> tuple[str, dict]:
        """Return the text and its info: the message above the board or question, gem's suffix."""
        text = f"{message}\n\n{info.get('suffix', '')}".strip()
        return text, dict(system=self.rules, instruction=answer_with("your move"), kept=message)
