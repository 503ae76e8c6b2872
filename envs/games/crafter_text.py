"""What a Crafter player reads and may say: system prompt, description of a state, actions.

`describe` turns a local view into text in the format of the paper; `system_prompt` holds the rules
of the game (costs as in crafter 1.8.3) and the achievements that are still missing; NEAR_MISSES
are other words for the actions. These are pure functions of names and numbers: the game itself is
in `envs.games.crafter`.
"""

import itertools

from envs.actions import combine

ACTIONS = {  # in the order of Crafter's own numbers
    "Noop": "wait for one step",
    "Move West": "turn west, and take one step if the cell there is free",
    "Move East": "turn east, and take one step if the cell there is free",
    "Move North": "turn north, and take one step if the cell there is free",
    "Move South": "turn south, and take one step if the cell there is free",
    "Do": "use what you face: collect a material, drink, hit a creature, eat a ripe plant",
    "Sleep": "sleep until energy is 9 again or something hurts you; requires energy below 9",
    "Place Stone": "requires 1 stone; you face grass, sand, path, water or lava",
    "Place Table": "requires 2 wood; you face grass, sand or path",
    "Place Furnace": "requires 4 stone; you face grass, sand or path",
    "Place Plant": "requires 1 sapling; you face grass",
    "Make Wood Pickaxe": "requires a table nearby and 1 wood",
    "Make Stone Pickaxe": "requires a table nearby and 1 wood, 1 stone",
    "Make Iron Pickaxe": "requires a table and a furnace nearby and 1 wood, 1 coal, 1 iron",
    "Make Wood Sword": "requires a table nearby and 1 wood",
    "Make Stone Sword": "requires a table nearby and 1 wood, 1 stone",
    "Make Iron Sword": "requires a table and a furnace nearby and 1 wood, 1 coal, 1 iron",
}

ACHIEVEMENTS = (  # roughly from easy to hard
    "Collect Wood, Place Table, Eat Cow, Collect Sapling, Collect Drink, Make Wood Pickaxe, Make "
    "Wood Sword, Place Plant, Defeat Zombie, Collect Stone, Place Stone, Eat Plant, Defeat "
    "Skeleton, Make Stone Pickaxe, Make Stone Sword, Wake Up, Place Furnace, Collect Coal, "
    "Collect Iron, Make Iron Pickaxe, Make Iron Sword, Collect Diamond"
).split(", ")

TOLD = ",\n".join(f"{action}: {meaning}" for action, meaning in ACTIONS.items())
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

THINGS = "water grass stone path sand tree lava coal iron diamond table furnace".split()
THINGS += "cow zombie skeleton arrow plant".split()  # in the order of the text
ASLEEP = "You are sleeping, and will not be able take actions until energy is full."
STATS = "health food drink energy".split()
OFFSETS = dict(north=(0, -1), south=(0, 1), west=(-1, 0), east=(1, 0))  # (x, y), y southwards
CENTRE = 4, 3  # column and row of the player in a view


def system_prompt(unlocked: set[str]) -> str:
    """Return the rules, and the achievements missing from `unlocked` (in Crafter's own names)."""
    return RULES.format(actions=TOLD, tips=TIPS, missing=still_missing(unlocked))


def still_missing(unlocked: set[str]) -> str:
    return list_missing(unlocked) or "None is left. Stay alive."


def list_missing(unlocked: set[str]) -> str:
    missing = [name for name in ACHIEVEMENTS if key(name) not in unlocked]
    return ",\n".join(f"{i}. {name}" for i, name in enumerate(missing, 1))


def key(achievement: str) -> str:
    """Return Crafter's own name of an achievement: "Collect Wood" is collect_wood."""
    return achievement.lower().replace(" ", "_")


def describe(
    view: list[list[str | None]], facing: str, inventory: dict[str, int], sleeping: bool, dead: bool
) -> tuple[str, str]:
    """Return a state in words: (long_term, short_term), the surroundings and the player's state.

    view: 7 rows from north to south, each of 9 names from west to east; None is outside the map
    """
    column, row = CENTRE
    if view[row][0] is None or view[0][column] is None:
        # as in the paper's runs, nothing can be seen near the west and north borders
        seen, front = [], None
    else:
        seen = _nearest(view)
        dx, dy = OFFSETS[facing]
        front = view[row + dy][column + dx]
    lines = [f"- {name} {steps} steps to your {where}" for name, steps, where in seen]
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
    found = {}
    for y, names in enumerate(view):
        for x, name in enumerate(names):
            place = abs(x - column) + abs(y - row), x - column, y - row
            found[name] = min(found.get(name, place), place)
    nearest = [(name, *found[name]) for name in THINGS if name in found]
    return [(name, steps, _direction(dx, dy)) for name, steps, dx, dy in nearest]


def _direction(dx: int, dy: int) -> str:
    vertical = "north" if dy < 0 else "south" if dy > 0 else ""
    horizontal = "west" if dx < 0 else "east" if dx > 0 else ""
    return "-".join(word for word in (vertical, horizontal) if word)


def _describe_player(inventory) -> str:
    status = "\n".join(f"- {name}: {inventory[name]}/9" for name in STATS)
    items = [f"- {k}: {n}" for k, n in inventory.items() if k not in STATS and n > 0]
    nothing = "You have nothing in your inventory."
    held = "\n".join(["Your inventory:", *items]) if items else nothing
    return f"Your status:\n{status}\n\n{held}"


def _moves() -> dict[str, list[str]]:
    """Return other words for Move North and so on. A diagonal stands for its first direction."""
    verbs = "move go walk step head run face turn take_step take_one_step"
    moves = {}
    for way, other in dict(north="up", south="down", west="left", east="right").items():
        moves[f"Move {way.title()}"] = [way, *combine(verbs, f"{way} to_{way} {other}")]
    for pair in itertools.product(("north", "south"), ("west", "east")):
        for first, second in (pair, pair[::-1]):
            diagonal = combine(verbs, f"{first}_{second} {first}{second}")
            moves[f"Move {first.title()}"] += [f"{first} {second}", *diagonal]
    return moves


def _tools() -> dict[str, list[str]]:
    """Return other words for making tools, as in "craft a wooden pickaxe"."""
    tools = {}
    for action in ACTIONS:
        if action.startswith("Make"):
            _, material, tool = action.lower().split()
            nouns = f"{material}_{tool} {material}en_{tool}"
            tools[action] = combine("make craft create build", nouns)
    return tools


NEAR_MISSES = {
    **_moves(),
    **_tools(),
    "Noop": ["no op", "do nothing", "wait", "idle", "stay", "stay still"],
    "Sleep": ["go to sleep", "rest"],
    "Do": [
        *("collect", "mine", "chop", "cut", "drink", "attack", "interact", "eat"),
        *combine("collect gather get harvest", "wood stone coal iron diamond sapling"),
        *combine("collect gather get drink", "water drink"),
        *combine("drink_from", "water lake lakes"),
        *combine("mine dig", "stone coal iron diamond"),
        *combine("chop cut chop_down cut_down", "tree trees wood"),
        *combine("attack defeat kill fight hit", "zombie skeleton cow"),
        *combine("eat", "cow plant ripe_plant"),
    ],
    "Place Stone": combine("put put_down", "stone"),
    "Place Table": combine("place put make craft build", "table crafting_table"),
    "Place Furnace": combine("put make craft build", "furnace"),
    "Place Plant": ["plant", *combine("place plant put", "sapling")],
}
