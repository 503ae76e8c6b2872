"""The tasks of ScienceWorld, as `scienceworld:boil`. Each environment has a Java process.

The episode's seed chooses one of the task's training variations. If there are few of them,
evaluation episodes repeat variations of training.
"""

import shutil

import gymnasium
from scienceworld import ScienceWorldEnv
from scienceworld.constants import ID2TASK

from envs.ecosystems import TEXT, CannotMake, answer_with, check_name

NO_LIMIT = 10**9  # turns; a wrapper applies the limit as a truncation


class ScienceWorld(gymnasium.Env):
    """A turn's reward is its gain in the score, whose maximum is 1; a ruined task costs 1."""

    observation_space = action_space = TEXT
    time_limit = 100  # turns, scienceworld's own default

    def __init__(self, task: str):
        check_name(task, ID2TASK.values(), "task")
        if shutil.which("java") is None:
            raise CannotMake("it needs Java, and there is no program `java`")
        self.task, self.world = task, ScienceWorldEnv("", envStepLimit=NO_LIMIT)
        self.world.load(task)
        # Listing the currently valid commands takes nine tenths of a turn, and nobody reads it.
        self.world.get_valid_action_object_combinations = list
        self.variations = self.world.get_variations_train()
        forms = ", ".join(self.world.get_possible_actions())
        self.commands = f"Commands, with the name of a thing in place of OBJ: {forms}."

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.world.load(self.task, int(self.np_random.choice(self.variations)))
        message, facts = self.world.reset()
        return self._observe(message, facts)

    def step(self, action: str):
        message, reward, over, facts = self.world.step(action.partition("\n")[0])
        text, info = self._observe(message, facts)
        return text, reward / 100, over, False, info | {"success": facts["score"] >= 100}

    def close(self):
        self.world.close()

    def _observe(self, message: str, facts: dict) -> tuple[str, dict]:
        """Return the text and its info: the game's message above the room and the inventory."""
        parts = [message.strip(), facts["look"].strip(), facts["inv"].strip()]
        text = "\n\n".join(dict.fromkeys(part for part in parts if part))
        system = f"{facts['taskDesc'].strip()}\n{self.commands}"
        info = dict(system=system, instruction=answer_with("your command"), kept=parts[0])
        return text, info
