"""A game of TextWorld, as `textworld:games/kitchen.z8`, or a folder of them, `textworld:games`.

Of a folder, the episode's seed chooses the game. Beside a game that `tw-make` made lies a .json
file, which is needed for the list of commands and the judgement whether the game was won.
"""

import warnings
from pathlib import Path

import gymnasium
import textworld

from envs.ecosystems import MINE, TEXT, Refused, answer_with

FORMATS = (".z8", ".ulx")  # since 1.7 textworld itself refuses the second, and says why
ASKED = "feedback description inventory objective score won admissible_commands"
INFOS = textworld.EnvInfos(**dict.fromkeys(ASKED.split(), True))


class TextWorld(gymnasium.Env):
    """The reward of a turn is what it adds to the game's score."""

    observation_space = action_space = TEXT
    time_limit = 50  # turns, the limit that textworld registers games with

    def __init__(self, path: str):
        files = sorted(Path(path).iterdir()) if Path(path).is_dir() else [Path(path)]
        self.paths = [str(file) for file in files if file.suffix in FORMATS and file.is_file()]
        if not self.paths:
            raise Refused(f"{path!r} is neither a .z8 or .ulx file nor a folder with some{MINE}")
        self.playing = {}
        self._start(self.paths[0])  # a file that cannot be played is told at once

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.game = self._start(self.paths[self.np_random.integers(len(self.paths))])
        self.game.seed(int(self.np_random.integers(2**31)))
        state = self.game.reset()
        self.score = state.score or 0
        self.objective = state.objective or "You play a text adventure."
        return self._seen(state, state.description or _without_status(state.feedback))

    def step(self, action: str):
        state, _, over = self.game.step(action.partition("\n")[0])
        gain, self.score = (state.score or 0) - self.score, state.score or 0
        text, info = self._seen(state, _without_status(state.feedback))
        return text, float(gain), bool(over), False, info | {"success": bool(state.won)}

    def close(self):
        for game in self.playing.values():
            game.close()

    def _start(self, path: str):
        if path not in self.playing:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the interpreter does not know the game
                self.playing[path] = textworld.start(path, request_infos=INFOS)
        return self.playing[path]

    def _seen(self, state, said: str) -> tuple[str, dict]:
        """Return what the game said over the room and the inventory, if it tells them."""
        parts = [said.strip() or "Nothing happens.", state.description, state.inventory]
        text = "\n\n".join(dict.fromkeys(part.strip() for part in parts if part))
        among = "; ".join(state.admissible_commands or ())
        instruction = answer_with(f"one of these commands: {among}" if among else "your command")
        return text, dict(system=self.objective, instruction=instruction, kept=parts[0])


def _without_status(feedback: str) -> str:
    """Leave out the line below the text: the prompt sign, the room, and the numbers of turns."""
    return feedback.rpartition("\n>")[0].strip() or feedback.strip()
