"""OpenSimplex noise in three dimensions for many points at once, and a table of it for a world.

Crafter asks the package `opensimplex` for some 20,000 single values per world. In pure Python, that
stalls a rollout for a second. `noise3` computes the same numbers for arrays, to the last bit,
because it adds the same terms in the package's order. `NoiseTable` holds them for one world.
"""

import numpy as np
import opensimplex
from opensimplex.constants import GRADIENTS3, NORM_CONSTANT3, SQUISH_CONSTANT3, STRETCH_CONSTANT3

# Where Crafter asks: (layer z, divisor of x and y). Tunnels stretch x and y differently.
FIELDS = [(8, 3), (3, 15), (3, 5), (0, 15), (0, 5), (6, 7), (1, 8), (2, 6), (6, 5), (4, 9), (5, 7)]
TUNNELS = 7, 3

# Lattice points whose gradients add up to the noise inside a cell, in the package's order. Points
# in the octahedron in the middle use all of MIDDLE. Points in the tetrahedra at (0,0,0) and (1,1,1)
# use four, and two more that depend on the nearest corners (as bits: 1 is (1,0,0), 6 is (0,1,1)).
MIDDLE = "100 010 001 110 101 011 000 111 -11 1-1 11- 200 020 002"
LOWER, UPPER = "000 100 010 001 ", "110 101 011 111 "
LOWER_MORE = {1: "1-0 10-", 2: "-10 01-", 4: "-01 0-1", 3: "110 11-", 5: "101 1-1", 6: "011 -11"}
UPPER_MORE = {6: "021 012", 5: "201 102", 3: "210 120", 1: "100 200", 2: "010 020", 4: "001 002"}


class NoiseTable:
    """Stands in for `opensimplex.OpenSimplex(seed)` while a world of size `area` is made."""

    def __init__(self, seed: int, area: tuple[int, int] = (64, 64)):
        self._package = opensimplex.OpenSimplex(seed)
        points = _crafter_points(area)
        values = noise3(self._package, points).tolist()
        self._table = dict(zip(zip(*points.tolist(), strict=True), values, strict=True))

    def noise3(self, x: float, y: float, z: float) -> float:
        value = self._table.get((x, y, z))
        return self._package.noise3(x, y, z) if value is None else value


def noise3(simplex: opensimplex.OpenSimplex, points: np.ndarray) -> np.ndarray:
    """Return `simplex.noise3` of P points; `points` is (3, P) floats."""
    x, y, z = points
    stretched = points + (x + y + z) * STRETCH_CONSTANT3
    cells = np.floor(stretched)
    offsets = points - (cells + (cells[0] + cells[1] + cells[2]) * SQUISH_CONSTANT3)
    values = np.zeros(points.shape[1])
    for region, vertices in _regions(*(stretched - cells)):
        cell, offset = cells[:, region].astype(np.int64), offsets[:, region]
        values[region] = sum(_term(simplex, cell, offset, v) for v in vertices.split())
    return values / NORM_CONSTANT3


def _regions(x, y, z):
    """Yield, for each region of the unit cube, which points lie in it, and its lattice points."""
    total = x + y + z
    lower, upper = total <= 1, total >= 2
    yield ~lower & ~upper, MIDDLE
    near = _nearest(x, y, z, 1 - total)
    for corners, more in LOWER_MORE.items():
        yield lower & (near == corners), LOWER + more
    near = 7 - _nearest(-x, -y, -z, total - 3)  # seen from (1,1,1)
    for corners, more in UPPER_MORE.items():
        yield upper & (near == corners), UPPER + more


def _nearest(x, y, z, own):
    """Return the corners with the two best of four scores, as bits; the own corner has none."""
    z_for_y, z_for_x = (x >= y) & (z > y), (x < y) & (z > x)
    p, x = np.where(z_for_x, 4, 1), np.where(z_for_x, z, x)
    q, y = np.where(z_for_y, 4, 2), np.where(z_for_y, z, y)
    return np.where((own > x) | (own > y), np.where(y > x, q, p), p | q)


def _term(simplex, cell, offset, vertex):
    """Return what a lattice point adds to the points in reach: (2 - d^2)^4 times gradient . d."""
    vertex = np.array([-1 if digit == "-" else int(digit) for digit in vertex])[:, None]
    offset = offset - vertex - vertex.sum() * SQUISH_CONSTANT3
    dx, dy, dz = offset
    reach = np.maximum(2 - dx * dx - dy * dy - dz * dz, 0)
    near = np.flatnonzero(reach)
    gradient = _gradients(simplex, *(cell[:, near] + vertex))
    dx, dy, dz = gradient * offset[:, near]
    term = np.zeros(len(reach))
    term[near] = np.square(np.square(reach[near])) * (dx + dy + dz)
    return term


def _gradients(simplex, x, y, z):
    perm, start = simplex._perm, simplex._perm_grad_index3
    start = start[(perm[(perm[x & 255] + y) & 255] + z) & 255]
    return GRADIENTS3[np.stack([start, start + 1, start + 2])]


def _crafter_points(area):
    x, y = np.indices(area).reshape(2, -1)
    layers = [(x / size, y / size, z) for z, size in FIELDS]
    z, size = TUNNELS
    layers += [(2 * x / size, y / 5 / size, z), (x / 5 / size, 2 * y / size, z)]
    return np.concatenate([np.stack(np.broadcast_arrays(*layer)) for layer in layers], 1)  # (3, P)
