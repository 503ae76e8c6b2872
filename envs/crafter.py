"""Crafter as a text environment: 17 actions, 22 achievements, the game's own reward.

The game is the crafter package (1.8.3), made reproducible and fast: equal seeds give equal
episodes in any process, and nothing is drawn until `render` is called. A turn is one step of the
game, except that sleeping is one turn until the player wakes. Death is `terminated`, the limit of
turns `truncated`. The words are in `envs.crafter_text`, the actions' spelling in `envs.actions`.
"""

from types import SimpleNamespace

import crafter
import numpy as np
from crafter import worldgen
from gymnasium.utils.seeding import np_random

from envs import crafter_text
from envs.crafter_noise import NoiseTable
from envs.text_env import TextEnv

AREA, VIEW = (64, 64), (9, 9)  # cells; the text shows VIEW without its two rows for the inventory
FACINGS = {(x, y): name for name, (x, y) in crafter_text.OFFSETS.items()}
RAW = {name: i for i, name in enumerate(crafter_text.ACTIONS)}


class Crafter(TextEnv):
    """Survive and unlock achievements, +1 for each, and a tenth of every change of health."""

    family = "crafter"

    def __init__(
        self,
        format_penalty: float = 0.1,
        max_episode_steps: int | None = None,
        binary_reward: bool = False,
    ):
        limit = 2000 if max_episode_steps is None else max_episode_steps
        super().__init__(limit, binary_reward, format_penalty)
        self.world, self.spare = World(), None
        self.prepared: int | None = None  # the seed of the spare world, if it is yet to be played
        self._long_term = ""

    def prepare(self, seed: int) -> None:
        """Make the world of reset(seed=seed) in advance, for it takes a quarter of a second."""
        self.spare, self.prepared = self.spare or World(), None
        drawn = world_seed(np_random(seed)[0])
        self.spare.begin(drawn)
        self.prepared = drawn

    def _start(self) -> str:
        seed = world_seed(self.np_random)
        if seed == self.prepared:
            self.world, self.spare = self.spare, self.world
        else:
            self.world.begin(seed)
        self.prepared = None
        self.world.step(RAW["Noop"])  # as in the paper's runs: the first text follows a Noop
        return self._describe()

    def _act(self, action: str) -> tuple[str, float, bool, bool]:
        reward, dead = self._raw_step(RAW[action])
        while self.world.player.sleeping and not dead:
            # sleep overrides the action, except on the step on which the player wakes up rested
            more, dead = self._raw_step(int(self.np_random.integers(len(RAW))))
            reward += more
        success = len(self.world.unlocked) == len(crafter_text.ACHIEVEMENTS)
        return self._describe(), reward, dead, success

    def _raw_step(self, action: int) -> tuple[float, bool]:
        _, reward, dead, _ = self.world.step(action)
        return float(reward), bool(dead)

    def _describe(self) -> str:
        player = self.world.player
        facing, dead = FACINGS[tuple(player.facing)], player.health <= 0
        self._long_term, short_term = crafter_text.describe(
            self.world.view(), facing, player.inventory, player.sleeping and not dead, dead
        )
        return f"{short_term}\n{self._long_term}"

    def kept(self, text: str) -> str:
        return self._long_term

    def system_prompt(self) -> str:
        return crafter_text.system_prompt(self.world.unlocked)

    def episode_metrics(self) -> dict[str, float]:
        unlocked = self.world.unlocked
        each = {crafter_text.key(name) for name in crafter_text.ACHIEVEMENTS}
        return {"achievements": float(len(unlocked))} | {
            f"achievement/{name}": float(name in unlocked) for name in sorted(each)
        }

    def render(self) -> np.ndarray:
        return self.world.picture()


def world_seed(generator: np.random.Generator) -> int:
    return int(generator.integers(2**31 - 1))


class World(crafter.Env):
    """crafter.Env without its two dependencies on chance: memory addresses and rendering."""

    def __init__(self):
        super().__init__(area=AREA, view=VIEW, size=(256, 256), length=None, seed=0)
        self._sem_view = self._obs  # the map as numbers, for info: unused here, and costly

    def begin(self, seed: int) -> None:
        """Start the first episode of crafter.Env(seed=seed)."""
        self._seed, self._episode = seed, 0
        package = worldgen.opensimplex
        worldgen.opensimplex = SimpleNamespace(
            OpenSimplex=NoiseTable
        )  # same noise, ten times as fast
        try:
            self.reset()
        finally:
            worldgen.opensimplex = package

    @property
    def player(self):
        return self._player

    @property
    def unlocked(self) -> set[str]:
        return {name for name, count in self._player.achievements.items() if count > 0}

    def view(self) -> list[list[str | None]]:
        """Names of the 7 x 9 cells around the player, from north-west; None is outside the map."""
        x, y = self._player.pos.tolist()
        columns, rows = range(x - 4, x + 5), range(y - 3, y + 4)
        return [[self._name(column, row) for column in columns] for row in rows]

    def _name(self, x: int, y: int) -> str | None:
        material, thing = self._world[x, y]
        return type(thing).__name__.lower() if thing else material

    def picture(self) -> np.ndarray:
        # At night the picture takes noise from the world's generator, which the game must not feel.
        # Creatures keep the generator they were made with.
        own = self._world.random
        self._world.random = np.random.RandomState(self._step)
        try:
            return super().render()
        finally:
            self._world.random = own

    def _obs(self):
        return None  # not drawn on each step

    def _balance_chunk(self, chunk, objs):
        # a set of objects is in the order of their addresses; which one goes must not depend on it
        super()._balance_chunk(chunk, sorted(objs, key=lambda creature: creature.pos.tolist()))
