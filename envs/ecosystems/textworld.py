"""A game of TextWorld, as `textworld:games/kitchen.z8`, or a folder of them, `textworld:games`.

The episode's seed chooses a game of a folder. `tw-make` writes a .json file beside each game, which
is needed to list its commands and to judge whether it was won.
"""

import warnings
from pathlib import Path

import gymnasium
import textworld

from envs.ecosystems import NAME_HINT, TEXT, CannotMake, answer_with

FORMATS = (".z8", ".ulx")  # since 1.7 textworld refuses the second with a message of its own
INFOS = textworld.EnvInfos(
    feedback=True,
    description=True,
    inventory=True,
    objective=True,
    score=True,
    won=True,
    admissible_commands=True,
)


class TextWorld(gymnasium.Env):
    """A turn's reward is its gain in the game's score."""

    observation_space = action_space = TEXT
    time_limit = 50  # turns, the limit that textworld registers games with

    def __init__(self, path: str):
        files = sorted(Path(path).iterdir()) if Path(path).is_dir() else [Path(path)]
        self.paths = [str(file) for file in files if file.suffix in FORMATS and file.is_file()]
        if not self.paths:
            formats = "neither a .z8 or .ulx file nor a folder with some"
            raise CannotMake(f"{path!r} is {formats}{NAME_HINT}")
        self.games = {}  # path -> started game
        self._start(self.paths[0])  # fails here if the file cannot be played

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.game = self._start(self.paths[self.np_random.integers(len(self.paths))])
        self.game.seed(int(self.np_random.integers(2**31)))
        state = self.game.reset()
        self.score = state.score or 0
        self.objective = state.objective or "You play a text adventure."
        return self._observe(state, state.description or _without_status(state.feedback))

    def step(self, action: str):
        state, _, over = self.game.step(action.partition("\n")[0])
        gain, self.score = (state.score or 0) - self.score, state.score or 0
        text, info = self._observe(state, _without_status(state.feedback))
        return text, float(gain), bool(over), False, info | {"success": bool(state.won)}

    def close(self):
        for game in self.games.values():
            game.close()

    def _start(self, path: str):
        if path not in self.games:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of an interpreter that does not know the game
                self.games[path] = textworld.start(path, request_infos=INFOS)
        return self.games[path]

    def _observe(self, state, message: str) -> tuple[str, dict]:
        """Return the text and its info: the message above the room and the inventory, if known."""
        parts = [message.strip() or "Nothing happens.", state.description, state.inventory]
        text = "\n\n".join(dict.fromkeys(part.strip() for part in parts if part))
        choices = "; ".join(state.admissible_commands or ())
        instruction = answer_with(
            f"one of these commands: {choices}" if choices else "your command"
        )
        return text, dict(system=self.objective, instruction=instruction, kept=parts[0])


def _without_status(feedback: str) -> str:
    """Return the text without the status line below it: prompt sign, room, numbers of turns."""
    return feedback.rpartition("\n>")[0].strip() or feedback.strip()
