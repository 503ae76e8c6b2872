"""Generates the worlds of `crafter.worldgen` with arrays, several times as fast.

The package decides cell by cell, first on the material of each, then on its creature. Here,
everything that does not depend on chance is computed for all cells at once. The result is bitwise
the same, because each cell goes through the package's operations on doubles in the package's order,
noise included. Random numbers are drawn cell by cell as in the package: for the same cells, from
the same generator and in the same order, so later draws of the game do not change either.
"""

from collections.abc import Iterator
from functools import cache

import numpy as np
import opensimplex

from envs.games.crafter_noise import Lattice

# Fields of noise: layer z and divisor of x and y. Tunnels stretch x and y differently.
FIELDS = [(8, 3), (3, 15), (3, 5), (0, 15), (0, 5), (6, 7), (1, 8), (2, 6), (6, 5), (4, 9), (5, 7)]
TUNNELS = 7, 3


def generate_world(world, player, objects) -> None:
    """Replace `crafter.worldgen.generate_world`. objects: the module `crafter.objects`"""
    simplex = opensimplex.OpenSimplex(seed=world.random.randint(0, 2**31 - 1))
    noise = {name: field.noise3(simplex) for name, field in _fields(world.area).items()}
    x, y = _cells(world.area)
    away = np.sqrt((x - player.pos[0]) ** 2 + (y - player.pos[1]) ** 2)
    tunnels = _set_materials(world, away, noise)
    _add_creatures(world, player, objects, away, tunnels)


def _set_materials(world, away: np.ndarray, noise: dict) -> np.ndarray:
    """Fill the map; return a mask of the tunnels. away: distance to the player, (cells,)"""
    start = 4 - away + 2 * noise[8, 3]
    start = 1 / (1 + np.exp(-start))
    water = noise[3, 15] + 0.15 * noise[3, 5] + 0.1 - 2 * start
    mountain = (noise[0, 15] + 0.3 * noise[0, 5]) / 1.3 - (4 * start + 0.3 * water)
    rest = start <= 0.5
    rock, rest = rest & (mountain > 0.15), rest & ~(mountain > 0.15)
    caves = rock & (noise[6, 7] > 0.15) & (mountain > 0.3)
    tunnels = rock & ~caves & ((noise["horizontal"] > 0.4) | (noise["vertical"] > 0.4))
    rock &= ~(caves | tunnels)
    lava = rock & (mountain > 0.3) & (noise[6, 5] > 0.35)
    sand = rest & (0.25 < water) & (water <= 0.35) & (noise[4, 9] > -0.2)
    rest &= ~sand
    sea, rest = rest & (0.3 < water), rest & ~(0.3 < water)
    drawn = [
        (rock & (noise[1, 8] > 0), 0.85, "coal"),
        (rock & (noise[2, 6] > 0.4), 0.75, "iron"),
        (rock & (mountain > 0.18), 0.994, "diamond"),
        (rest & (noise[5, 7] > 0), 0.8, "tree"),
    ]
    names = {"path": caves | tunnels, "lava": lava, "stone": rock, "sand": sand, "water": sea}
    ids = [world._mat_ids[name] for name in names]
    materials = np.select(list(names.values()), ids, world._mat_ids["grass"])
    for cell, name in _draw(world.random, drawn):
        materials[cell] = world._mat_ids[name]
    world._mat_map[:] = materials.reshape(world.area)
    return tunnels


def _add_creatures(world, player, objects, away: np.ndarray, tunnels: np.ndarray) -> None:
    materials = world._mat_map.ravel()
    grass, sand, path = (materials == world._mat_ids[name] for name in ("grass", "sand", "path"))
    creatures = [
        (grass & (away > 3), 0.985, lambda at: objects.Cow(world, at)),
        ((grass | sand | path) & (away > 10), 0.993, lambda at: objects.Zombie(world, at, player)),
        (path & tunnels, 0.95, lambda at: objects.Skeleton(world, at, player)),
    ]
    for cell, creature in _draw(world.random, creatures):
        world.add(creature(divmod(cell, world.area[1])))


def _draw(random: np.random.RandomState, choices: list[tuple]) -> Iterator[tuple]:
    """Yield (cell, thing) for each cell that gets a thing by chance, in the order of the cells.

    choices: (mask of the cells that may get the thing, threshold, thing). A cell draws a number for
    one choice after another, until one exceeds its threshold.
    """
    masks = np.stack([mask for mask, _, _ in choices])
    cells = np.flatnonzero(masks.any(0))
    for cell, possible in zip(cells.tolist(), masks[:, cells].T.tolist(), strict=True):
        for allowed, (_, threshold, thing) in zip(possible, choices, strict=True):
            if allowed and random.random_sample() > threshold:  # the number uniform() returns
                yield cell, thing
                break


def _cells(area: tuple[int, int]) -> np.ndarray:
    return np.indices(area).reshape(2, -1)


@cache  # about 12 MB, shared by all worlds
def _fields(area: tuple[int, int]) -> dict:
    """Return a Lattice for each field of noise."""
    x, y = _cells(area)
    z, size = TUNNELS
    points = {(z, size): (x / size, y / size, z) for z, size in FIELDS}
    points["horizontal"] = 2 * x / size, y / 5 / size, z
    points["vertical"] = x / 5 / size, 2 * y / size, z
    return {name: Lattice(np.stack(np.broadcast_arrays(*point))) for name, point in points.items()}
