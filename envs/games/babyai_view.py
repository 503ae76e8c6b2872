"""The agent's view of a minigrid level: the 7 x 7 cells in front of it and beside it.

The view equals that of minigrid's `gen_obs`, cell by cell, in a fraction of the time. Minigrid
copies a square of the grid, rotates the copy up to four times and encodes it; here each cell is
read from the grid itself.
"""

import numpy as np

SIZE = 7
MIDDLE, NEAREST = SIZE // 2, SIZE - 1  # the agent's own column and row
FORWARD = ((1, 0), (0, 1), (-1, 0), (0, -1))  # steps in x and y; y grows downwards
RIGHTWARDS = [(i, i + 1) for i in range(SIZE - 1)]  # pairs of neighbours in a row
LEFTWARDS = [(i, i - 1) for i in range(SIZE - 1, 0, -1)]
UNSEEN, EMPTY = (0, 0, 0), (1, 0, 0)


def look(grid, position, direction: int, carrying, outside) -> np.ndarray:
    """Return (7, 7, 3): (type, colour, state) of column i from the left and row j from far to near.

    grid: minigrid's Grid; position: (x, y) of the agent; direction: index into FORWARD
    carrying: the object shown in the agent's own cell, or None
    outside: the object used for every cell beyond the grid
    """
    columns = _cells_ahead(grid, position, direction, outside)
    seen = _visible([[cell is None or cell.see_behind() for cell in column] for column in columns])
    columns[MIDDLE][NEAREST] = carrying
    image = [
        [_encoded(cell) if is_seen else UNSEEN for cell, is_seen in zip(column, flags, strict=True)]
        for column, flags in zip(columns, seen, strict=True)
    ]
    return np.array(image, dtype=np.uint8)


def _cells_ahead(grid, position, direction: int, outside) -> list[list]:
    """Return the objects in the view (None: nothing there) as columns, each from far to near."""
    ahead_x, ahead_y = FORWARD[direction]
    right_x, right_y = -ahead_y, ahead_x
    columns = []
    for right in range(-MIDDLE, MIDDLE + 1):
        # A column starts at its farthest cell; each further cell is one step closer.
        x = int(position[0]) + right * right_x + NEAREST * ahead_x
        y = int(position[1]) + right * right_y + NEAREST * ahead_y
        column = []
        for _ in range(SIZE):
            inside = 0 <= x < grid.width and 0 <= y < grid.height
            column.append(grid.grid[y * grid.width + x] if inside else outside)
            x, y = x - ahead_x, y - ahead_y
        columns.append(column)
    return columns


def _visible(see_through: list[list[bool]]) -> list[list[bool]]:
    """Return which cells the agent sees, by minigrid's rule.

    Sight spreads from the agent's cell, row by row away from it, in each row first to the right and
    then to the left. A visible cell that can be seen through reveals its neighbour in the row, and
    the cells behind both.
    """
    seen = [[False] * SIZE for _ in range(SIZE)]
    seen[MIDDLE][NEAREST] = True
    for j in range(NEAREST, -1, -1):
        for i, beside in RIGHTWARDS + LEFTWARDS:
            if seen[i][j] and see_through[i][j]:
                seen[beside][j] = True
                if j > 0:
                    seen[i][j - 1] = seen[beside][j - 1] = True
    return seen


def _encoded(cell) -> tuple[int, int, int]:
    return EMPTY if cell is None else cell.encode()
