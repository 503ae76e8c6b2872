"""The actions of Crafter, and other words for them that a player may use."""

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


def _moves() -> dict[str, list[str]]:
    """Return other words for Move North and so on. A diagonal counts as its first direction."""
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
