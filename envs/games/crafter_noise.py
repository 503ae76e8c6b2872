"""OpenSimplex noise in three dimensions for many points at once, in any number of worlds.

Crafter asks the package `opensimplex` for some 27,000 single values per world. In pure Python, that
stalls a rollout for a second. `Lattice` computes the same numbers for arrays, to the last bit: it
repeats the package's operations in the package's order, with the same products and sums of doubles,
and adds a point's terms from the first to the last.
"""

import numpy as np
import opensimplex
from opensimplex.constants import GRADIENTS3, NORM_CONSTANT3, SQUISH_CONSTANT3, STRETCH_CONSTANT3

# Lattice points whose gradients add up to the noise inside a cell, in the package's order; "-" is a
# coordinate of -1. Points in the octahedron in the middle use all of MIDDLE. Points in the
# tetrahedra at (0,0,0) and (1,1,1) use four, and two more that depend on the nearest corners (as
# bits: 1 is (1,0,0), 6 is (0,1,1)).
MIDDLE = (
    *("100", "010", "001", "110", "101", "011", "000", "111"),
    *("-11", "1-1", "11-", "200", "020", "002"),
)
LOWER, UPPER = ("000", "100", "010", "001"), ("110", "101", "011", "111")
LOWER_MORE = {
    1: ("1-0", "10-"),
    2: ("-10", "01-"),
    4: ("-01", "0-1"),
    3: ("110", "11-"),
    5: ("101", "1-1"),
    6: ("011", "-11"),
}
UPPER_MORE = {
    6: ("021", "012"),
    5: ("201", "102"),
    3: ("210", "120"),
    1: ("100", "200"),
    2: ("010", "020"),
    4: ("001", "002"),
}


class Lattice:
    """The parts of the noise of P points that do not depend on the seed.

    They are, for each term of the noise: its point, the index of its gradient, offset and weight.
    points: (3, P) floats
    """

    def __init__(self, points: np.ndarray):
        self.size = points.shape[1]
        x, y, z = points
        stretched = points + (x + y + z) * STRETCH_CONSTANT3
        cells = np.floor(stretched)
        offsets = points - (cells + (cells[0] + cells[1] + cells[2]) * SQUISH_CONSTANT3)
        terms = [
            _term(region, cells[:, region], offsets[:, region], vertex)
            for region, vertices in _regions(*(stretched - cells))
            for vertex in vertices
        ]
        parts = [np.concatenate(part, axis=-1) for part in zip(*terms, strict=True)]
        self._point, vertices, self._offset, self._weight = parts  # (M,) (M,) (3, M) (M,)
        # Neighbouring points share gradients, so there are far fewer gradients than terms.
        vertices, indices = np.unique(vertices, return_inverse=True)
        self._vertices = np.stack([vertices, vertices >> 8, vertices >> 16]).astype(np.uint8)
        self._vertex_index = indices.astype(np.int32)  # (M,)

    def noise3(self, simplex: opensimplex.OpenSimplex) -> np.ndarray:
        """Return `simplex.noise3` of the P points."""
        perm = simplex._perm.astype(np.uint8)  # sums of bytes wrap like the package's `& 0xFF`
        x, y, z = self._vertices
        first = simplex._perm_grad_index3[perm[perm[x] + y] + z]
        gradients = GRADIENTS3[np.stack([first, first + 1, first + 2])].astype(float)
        dx, dy, dz = gradients[:, self._vertex_index] * self._offset
        terms = self._weight * (dx + dy + dz)
        # bincount adds the terms of a point in their order, which the last bit depends on.
        return np.bincount(self._point, terms, self.size) / NORM_CONSTANT3


def _regions(x, y, z):
    """Yield, for each region of the unit cube, the indices of its points and its lattice points."""
    total = x + y + z
    lower, upper = total <= 1, total >= 2
    yield np.flatnonzero(~lower & ~upper), MIDDLE
    near = _nearest(x, y, z, 1 - total)
    for corners, more in LOWER_MORE.items():
        yield np.flatnonzero(lower & (near == corners)), LOWER + more
    near = 7 - _nearest(-x, -y, -z, total - 3)  # seen from (1,1,1)
    for corners, more in UPPER_MORE.items():
        yield np.flatnonzero(upper & (near == corners)), UPPER + more


def _nearest(x, y, z, own):
    """Return the corners with the two best of four scores, as bits; the own corner has no bit."""
    z_for_y, z_for_x = (x >= y) & (z > y), (x < y) & (z > x)
    p, x = np.where(z_for_x, 4, 1), np.where(z_for_x, z, x)
    q, y = np.where(z_for_y, 4, 2), np.where(z_for_y, z, y)
    return np.where((own > x) | (own > y), np.where(y > x, q, p), p | q)


def _term(points, cells, offsets, vertex):
    """Return the points that a lattice point reaches, its bytes, offsets d and (2 - d^2)^4."""
    vertex = np.array([-1 if digit == "-" else int(digit) for digit in vertex])[:, None]
    offsets = offsets - vertex - vertex.sum() * SQUISH_CONSTANT3
    dx, dy, dz = offsets
    reach = 2 - dx * dx - dy * dy - dz * dz
    near = np.flatnonzero(reach > 0)
    x, y, z = (cells[:, near].astype(np.int64) + vertex) & 0xFF
    weight = np.square(np.square(reach[near]))
    return points[near].astype(np.int32), x | y << 8 | z << 16, offsets[:, near], weight
