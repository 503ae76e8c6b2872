"""Crafter as a text environment: 17 actions, 22 achievements, the game's own reward.

The game is the crafter package (1.8.3), made reproducible and fast: equal seeds give equal episodes
in any process, and no picture is drawn until `render` is called. A turn is one step of the game,
except that one turn of sleep lasts until the player wakes. Death is `terminated`, and the turn
limit is `truncated`. `envs.games.crafter_text` writes the observations and the system message;
`envs.games.crafter_actions` lists the actions.
"""

from functools import partial

import crafter
import numpy as np
from crafter import objects, worldgen
from gymnasium.utils.seeding import np_random

from envs.games import crafter_text
from envs.games.crafter_actions import ACTIONS, NEAR_MISSES
from envs.games.crafter_world import generate_world
from envs.text_env import TextEnv

AREA, VIEW = (64, 64), (9, 9)  # cells; the text omits the view's two inventory rows
FACINGS = {(x, y): name for name, (x, y) in crafter_text.OFFSETS.items()}


class Crafter(TextEnv):
    """Survive and unlock achievements. Each pays 1; a change of health pays a tenth of it."""

    family = "crafter"
    actions = tuple(ACTIONS)
    default_action = "Noop"
    near_misses = NEAR_MISSES
    prompt_fields = {
        "actions": lambda env: crafter_text.ACTION_LIST,
        "tips": lambda env: crafter_text.TIPS,
        "achievements": lambda env: crafter_text.still_missing(env.world.unlocked),
    }

    def __init__(self, format_penalty: float = 0.1, max_episode_steps: int = 2000):
        super().__init__(max_episode_steps, format_penalty)
        self.world, self.next_world = World(), None
        self.next_seed: int | None = None  # the seed of next_world, None if it is not ready
        self._long_term = ""

    def prepare(self, seed: int) -> None:
        """Generate the world of reset(seed=seed) in advance, outside the turns."""
        self.next_world, self.next_seed = self.next_world or World(), None
        drawn = world_seed(np_random(seed)[0])
        self.next_world.begin(drawn)
        self.next_seed = drawn  # set last: an interrupted world is not played

    def _start(self) -> str:
        seed = world_seed(self.np_random)
        if seed == self.next_seed:
            self.world, self.next_world = self.next_world, self.world
        else:
            self.world.begin(seed)
        self.next_seed = None
        self._raw_step("Noop")  # as in the paper's runs, the first text follows a Noop
        return self._describe()

    def _act(self, action: str) -> tuple[str, float, bool, bool]:
        reward, dead = self._raw_step(action)
        while self.world.player.sleeping and not dead:
            # Sleep overrides the action, except on the step on which the player wakes up rested.
            drawn = int(self.np_random.integers(len(self.actions)))
            step_reward, dead = self._raw_step(self.actions[drawn])
            reward += step_reward
        success = len(self.world.unlocked) == len(crafter_text.ACHIEVEMENTS)
        return self._describe(), reward, dead, success

    def _raw_step(self, action: str) -> tuple[float, bool]:
        """Take one step of the game; return its reward and whether the player died."""
        _, reward, dead, _ = self.world.step(self.actions.index(action))
        return float(reward), bool(dead)

    def _describe(self) -> str:
        player = self.world.player
        dead = player.health <= 0
        self._long_term, short_term = crafter_text.describe(
            view=self.world.view(),
            facing=FACINGS[tuple(player.facing)],
            inventory=player.inventory,
            sleeping=player.sleeping and not dead,
            dead=dead,
        )
        return f"{short_term}\n{self._long_term}"

    def kept(self, text: str) -> str:
        return self._long_term

    def system_prompt(self) -> str:
        return crafter_text.system_prompt(self.world.unlocked)

    def episode_metrics(self) -> dict[str, float]:
        unlocked = self.world.unlocked
        names = sorted(crafter_text.key(achievement) for achievement in crafter_text.ACHIEVEMENTS)
        each = {f"achievement/{name}": float(name in unlocked) for name in names}
        return {"achievements": float(len(unlocked))} | each

    def render(self) -> np.ndarray:
        return self.world.picture()


def world_seed(generator: np.random.Generator) -> int:
    return int(generator.integers(2**31 - 1))


class World(crafter.Env):
    """crafter.Env, but neither memory addresses nor rendering influence the game."""

    def __init__(self):
        super().__init__(area=AREA, view=VIEW, size=(256, 256), length=None, seed=0)
        self._sem_view = self._obs  # skips a costly map in info that nobody reads

    def begin(self, seed: int) -> None:
        """Start the first episode of crafter.Env(seed=seed)."""
        self._seed, self._episode = seed, 0
        original = worldgen.generate_world
        # Generates the same worlds, several times as fast.
        worldgen.generate_world = partial(generate_world, objects=objects)
        try:
            self.reset()
        finally:
            worldgen.generate_world = original

    @property
    def player(self):
        return self._player

    @property
    def unlocked(self) -> set[str]:
        return {name for name, count in self._player.achievements.items() if count > 0}

    def view(self) -> list[list[str | None]]:
        """Return the names of the 7 x 9 cells around the player; None means outside the map."""
        x, y = self._player.pos.tolist()
        columns, rows = range(x - 4, x + 5), range(y - 3, y + 4)
        return [[self._name(column, row) for column in columns] for row in rows]

    def _name(self, x: int, y: int) -> str | None:
        material, thing = self._world[x, y]
        return type(thing).__name__.lower() if thing else material

    def picture(self) -> np.ndarray:
        # At night, rendering draws noise from the world's generator, which would change the game.
        # Creatures keep the generator they were created with.
        own = self._world.random
        self._world.random = np.random.RandomState(self._step)
        try:
            return super().render()
        finally:
            self._world.random = own

    def _obs(self):
        return None  # crafter would render a picture on every step

    def _balance_chunk(self, chunk, objs):
        # A set is ordered by memory addresses, which must not decide which creature is removed.
        super()._balance_chunk(chunk, sorted(objs, key=lambda creature: creature.pos.tolist()))
