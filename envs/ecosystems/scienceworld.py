"""The tasks of ScienceWorld, as `scienceworld:boil`. Each environment has a Java process.

The episode's seed chooses among the task's variations for training. Where these are few, episodes
of an evaluation repeat what was trained on.
"""

import shutil

import gymnasium
from scienceworld import ScienceWorldEnv
from scienceworld.constants import ID2TASK

from envs.ecosystems import TEXT, Refused, answer_with, check_name

ENDLESS = 10**9  # turns; the limit is a wrapper's, which truncates


class ScienceWorld(gymnasium.Env):
    """The reward is what a turn adds to the score, of which 1 is all; a ruined task costs 1."""

    observation_space = action_space = TEXT
    time_limit = 100  # turns, scienceworld's own default

    def __init__(self, task: str):
        check_name(task, ID2TASK.values(), "task")
        if shutil.which("java") is None:
            raise Refused("it needs Java, and there is no program `java`")
        self.task, self.world = task, ScienceWorldEnv("", envStepLimit=ENDLESS)
        self.world.load(task)
        # Listing the commands that are valid now takes nine tenths of a turn, and nobody sees it.
        self.world.get_valid_action_object_combinations = list
        self.variations = self.world.get_variations_train()
        forms = ", ".join(self.world.get_possible_actions())
        self.commands = f"Commands, with the name of a thing in place of OBJ: {forms}."

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.world.load(self.task, int(self.np_random.choice(self.variations)))
        return self._seen(*self.world.reset())

    def step(self, action: str):
        said, reward, over, facts = self.world.step(action.partition("\n")[0])
        text, info = self._seen(said, facts)
        return text, reward / 100, over, False, info | {"success": facts["score"] >= 100}

    def close(self):
        self.world.close()

    def _seen(self, said: str, facts: dict) -> tuple[str, dict]:
        """Return what the game said over the room and the inventory, which a look would tell."""
        parts = [said.strip(), facts["look"].strip(), facts["inv"].strip()]
        text = "\n\n".join(dict.fromkeys(part for part in parts if part))
        system = f"{facts['taskDesc'].strip()}\n{self.commands}"
        info = dict(system=system, instruction=answer_with("your command"), kept=parts[0])
        return text, info
