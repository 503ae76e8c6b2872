"""What a Crafter player reads: the system prompt and the description of a state.

`describe` turns a local view into text in the format of the paper; `system_prompt` holds the rules
of the game (costs as in crafter 1.8.3) and the achievements that are still missing. These are pure
functions of names and numbers; the game itself is in `envs.games.crafter`.
"""

from envs.games.crafter_actions import ACTIONS

ACHIEVEMENTS = [  # roughly from easy to hard
    *("Collect Wood", "Place Table", "Eat Cow", "Collect Sapling", "Collect Drink"),
    *("Make Wood Pickaxe", "Make Wood Sword", "Place Plant", "Defeat Zombie", "Collect Stone"),
    *("Place Stone", "Eat Plant", "Defeat Skeleton", "Make Stone Pickaxe", "Make Stone Sword"),
    *("Wake Up", "Place Furnace", "Collect Coal", "Collect Iron", "Make Iron Pickaxe"),
    *("Make Iron Sword", "Collect Diamond"),
]

ACTION_LIST = ",\n".join(f"{action}: {meaning}" for action, meaning in ACTIONS.items())
TIPS = """\
Advice: look at your status, inventory, surroundings and the cell that you face, compare them with \
the requirements, and plan which achievement to reach next. To use a thing, walk next to it and \
move towards it once more so that you face it. Wall yourself in with stone before you sleep."""

RULES = """You play Crafter, a survival game on a map of square cells seen from above. \
Your goal is to unlock every achievement of the list below without dying.

Each turn you choose one of these actions:
{actions}.
Nearby means on one of the eight cells around you. You can walk on grass, sand and path where \
nothing stands. An action whose requirement is not met does nothing, and what you make or place \
uses up the materials.

What you meet, and what Do does when you face it:
- tree: gives 1 wood and is gone.
- grass: gives 1 sapling, one time in ten.
- water: drinking adds 1 drink.
- stone: gives 1 stone; requires a wood pickaxe.
- coal: gives 1 coal; requires a wood pickaxe.
- iron: gives 1 iron; requires a stone pickaxe.
- diamond: gives 1 diamond; requires an iron pickaxe.
- cow: eating it adds 6 food; it takes 3 damage.
- plant: grows from a placed sapling; Do has no effect until it is ripe, after 300 \
steps; then eating it adds 4 food. Creatures beside it destroy it.
- zombie: on grass, more of them at night; takes 5 damage; hits you for 2 health, for 7 if asleep.
- skeleton: in caves; takes 3 damage; its arrows cost 2 health.
- table, furnace: placed by you; needed nearby to make tools.
- lava: walking onto it kills you; a placed stone covers it.
Mined stone, coal, iron and diamond leave path. One Do deals 1 damage; with a wood sword 2, with a \
stone sword 3, with an iron sword 5.

Health, food, drink and energy go up to 9, and so does each item of the inventory. Food, drink and \
energy fall with time. While any of them is 0 you lose health, otherwise it recovers slowly. At \
health 0 you die and the game is over. Sleep takes many steps within one turn; sleeping until \
energy is 9 unlocks Wake Up.

Every observation names the nearest thing of each kind among the cells up to 4 west or east and up \
to 3 north or south of you, its distance in steps and its direction, and the thing that you face.

{tips}

Achievements still to unlock:
{missing}

PLAY!"""

THINGS = [  # in the order in which the text lists them
    *("water", "grass", "stone", "path", "sand", "tree", "lava", "coal", "iron", "diamond"),
    *("table", "furnace", "cow", "zombie", "skeleton", "arrow", "plant"),
]
ASLEEP = "You are sleeping, and will not be able take actions until energy is full."
STATS = ["health", "food", "drink", "energy"]
OFFSETS = dict(north=(0, -1), south=(0, 1), west=(-1, 0), east=(1, 0))  # (x, y); y grows southwards
CENTRE = 4, 3  # column and row of the player in a view


def system_prompt(unlocked: set[str]) -> str:
    """Return the rules and the missing achievements. unlocked: in Crafter's own names"""
    return RULES.format(actions=ACTION_LIST, tips=TIPS, missing=still_missing(unlocked))


def still_missing(unlocked: set[str]) -> str:
    return list_missing(unlocked) or "None is left. Stay alive."


def list_missing(unlocked: set[str]) -> str:
    missing = [name for name in ACHIEVEMENTS if key(name) not in unlocked]
    return ",\n".join(f"{i}. {name}" for i, name in enumerate(missing, 1))


def key(achievement: str) -> str:
    """Return Crafter's own name of an achievement: collect_wood for "Collect Wood"."""
    return achievement.lower().replace(" ", "_")


def describe(
    view: list[list[str | None]], facing: str, inventory: dict[str, int], sleeping: bool, dead: bool
) -> tuple[str, str]:
    """Return the text of a state: (long_term, short_term), the surroundings and the player's state.

    view: 7 rows from north to south, each of 9 names from west to east; None means outside the map
    """
    column, row = CENTRE
    if view[row][0] is None or view[0][column] is None:
        # As in the paper's runs, nothing is visible near the west and north borders.
        visible, front = [], None
    else:
        visible = _nearest(view)
        dx, dy = OFFSETS[facing]
        front = view[row + dy][column + dx]
    lines = [f"- {name} {steps} steps to your {where}" for name, steps, where in visible]
    surroundings = "\n".join(["You see:", *lines]) if lines else "You see nothing away from you."
    long_term = f"{surroundings}\n\nYou face {front or 'nothing'} at your front."
    if sleeping:
        long_term = f"{ASLEEP}\n\n\n\n{long_term}"
    elif dead:
        long_term = f"You died.\n\n\n\n{long_term}"
    return long_term, _describe_player(inventory)


def _nearest(view) -> list[tuple[str, int, str]]:
    """Return (name, steps, direction) of each kind's nearest cell; of equals, the westernmost."""
    column, row = CENTRE
    nearest = {}  # name -> (steps, dx, dy)
    for y, names in enumerate(view):
        for x, name in enumerate(names):
            candidate = abs(x - column) + abs(y - row), x - column, y - row
            nearest[name] = min(nearest.get(name, candidate), candidate)
    found = [(name, *nearest[name]) for name in THINGS if name in nearest]
    return [(name, steps, _direction(dx, dy)) for name, steps, dx, dy in found]


def _direction(dx: int, dy: int) -> str:
    vertical = "north" if dy < 0 else "south" if dy > 0 else ""
    horizontal = "west" if dx < 0 else "east" if dx > 0 else ""
    return "-".join(word for word in (vertical, horizontal) if word)


def _describe_player(inventory) -> str:
    status = "\n".join(f"- {name}: {inventory[name]}/9" for name in STATS)
    items = [f"- {name}: {n}" for name, n in inventory.items() if name not in STATS and n > 0]
    empty = "You have nothing in your inventory."
    items_text = "\n".join(["Your inventory:", *items]) if items else empty
    return f"Your status:\n{status}\n\n{items_text}"
