"""What a BabyAI player thinks: the thing that its mission needs next, and its position."""

from collections.abc import Sequence


def thought(mission: str, text: str, seen: Sequence[str] = ()) -> str:
    """Return the thing that the mission needs next and its position, as the observation words it.

    seen: earlier observations, the latest last, in one of which the thing may have been visible
    """
    lines = text.split("\n")
    carried = next((line[12:] for line in lines if line.startswith("You carry a ")), None)
    wanted = wanted_things(mission)
    if carried and len(wanted) > 1:
        wanted = wanted[1:] if carried.endswith(wanted[0]) else wanted[:1]
    name = wanted[0]
    if carried and carried.endswith(name):
        return f"I carry the {name}."
    if position := position_of(name, text):
        return f"the {name} is {position}."
    position = next(filter(None, (position_of(name, old) for old in reversed(seen))), None)
    return f"I saw the {name} {position}." if position else f"I do not see the {name}."


def position_of(name: str, text: str) -> str | None:
    """Return a thing's position in an observation, of several the first's; None: not visible"""
    for line in text.split("\n"):
        words = line.split()
        if words[0] != "a":
            continue
        for cut in range(2, len(words)):
            if " ".join(words[1:cut]).endswith(name):
                return " ".join(words[cut:])
    return None


def wanted_things(mission: str) -> list[str]:
    """Return the things of a mission, without articles, in the order in which it needs them."""
    if " after you " in mission:
        later, first = mission.split(" after you ")
        mission = f"{first}, then {later}"
    if mission.startswith("open "):
        return ["key", "door"]
    for words in ("pick up ", "go to ", "put ", "then "):
        mission = mission.replace(words, "")
    parts = mission.replace(" next to ", ", ").split(", ")
    return [part.split(" ", 1)[1] for part in parts]
