"""From a model's response to an action: tolerant parsing, pure functions of text.

The action is what follows the last ACTION marker, or the whole text where there is none. Only its
first line counts; case, punctuation, underscores, articles, "2 steps" and remarks in parentheses
are ignored. `FAMILIES` lists each family's actions, the default that runs in the place of an
invalid one, and the near-misses whose meaning is beyond doubt. Two actions in a row, or an action
that the family does not have, stay invalid.
"""

import functools
import itertools
import re
from dataclasses import dataclass

# The literal markers, preferred in this order; only then one that is spelt or set otherwise.
MARKERS = ("ACTION:", "action:", "Action")
ODD_MARKER = re.compile(r"(?i:action)[\s*_`]{0,3}:|ACTION")


def parse(family: str, text: str) -> tuple[str, bool]:
    """The action that `text` names, and True; or the family's default action, and False.

    ValueError: no such family. Never raises otherwise; linear in the length of the text.
    """
    if family not in FAMILIES:
        raise ValueError(f"unknown family {family!r}; choices: {', '.join(FAMILIES)}")
    choices = FAMILIES[family]
    action = choices.table.get(_phrase(text[_marker(text)[1] :], choices.objects))
    return (choices.default, False) if action is None else (action, True)


def with_action(text: str, action: str) -> str:
    """The response with `action` in the place of the one it names."""
    return f"{text[: split(text)].strip()}\nACTION: {action}".lstrip()


def split(text: str) -> int:
    """Where the last action marker begins; len(text) without one. THINK is before, ACTION after."""
    start, end = _marker(text)
    return start if end else len(text)


def _marker(text: str) -> tuple[int, int]:
    """Start and end of the marker that counts; (0, 0) if there is none."""
    for marker in MARKERS:
        start = text.rfind(marker)
        if start >= 0:
            return start, start + len(marker)
    span = (0, 0)
    for match in ODD_MARKER.finditer(text):
        span = match.span()
    return span


GROUP = re.compile(r"\([^()]*\)")
WORD = re.compile(r"[^\W_]+")
ARTICLES = {"a", "an", "the"}
OPENING = ARTICLES | {"action", "is", "i", "will", "choose", "to"}  # "the action is", "I will"
NUMBER = r"(?:\d+|one|two|three)"
COUNT = re.compile(rf" (?:once|(?:{NUMBER} )?(?:steps?|times?|cells?))$")


def _phrase(said: str, objects: re.Pattern | None) -> str:
    """What is looked up in a family's table: the first line in lower case and in plain words."""
    first = WORD.search(said)
    if first is None:
        return ""
    start = max(said.rfind(end, 0, first.start()) for end in "\n\r") + 1
    line = re.split("[\n\r]", said[start:], maxsplit=1)[0].lower()
    # A remark in parentheses goes, closed or not; if nothing else is left, it was the answer.
    outside = GROUP.sub(" ", line).partition("(")[0]
    words = WORD.findall(outside) or WORD.findall(line)
    words = itertools.dropwhile(OPENING.__contains__, words)
    phrase = COUNT.sub("", " ".join(word for word in words if word not in ARTICLES))
    return objects.sub("", phrase) if objects else phrase


@dataclass(frozen=True)
class Family:
    """The actions of a family of environments.

    actions: in the order of the environment's own indices
    default: runs in the place of an invalid one
    near_misses: phrase in lower-case words, without articles -> action
    objects: may follow a verb without changing what it means, as in "pick up the key"
    """

    actions: tuple[str, ...]
    default: str
    near_misses: dict[str, str]
    objects: re.Pattern | None = None

    @functools.cached_property
    def table(self) -> dict[str, str]:
        """Every phrase that is accepted, also written as one word."""
        phrases = self.near_misses | {action.lower(): action for action in self.actions}
        return {phrase.replace(" ", ""): action for phrase, action in phrases.items()} | phrases


def _to(action: str, *phrases: str) -> dict[str, str]:
    return dict.fromkeys(phrases, action)


def _pairs(verbs: str, nouns: str) -> list[str]:
    """Every verb with every noun, as in (mine dig) x (stone coal); _ stands for a space."""
    pairs = [f"{verb} {noun}" for verb in verbs.split() for noun in nouns.split()]
    return [pair.replace("_", " ") for pair in pairs]


BABYAI = Family(
    actions=("turn left", "turn right", "go forward", "pick up", "drop", "toggle"),
    default="go forward",
    near_misses={
        # "go left" is not here: it asks for a step that does not exist.
        **_to("turn left", "left", *_pairs("turn_to turn_to_your rotate face look", "left")),
        **_to("turn right", "right", *_pairs("turn_to turn_to_your rotate face look", "right")),
        **_to("go forward", "forward", "forwards", "ahead", "straight", "advance"),
        **_to("go forward", *_pairs("go move step walk", "forward forwards ahead")),
        **_to("go forward", *_pairs("take_step take_one_step", "forward forwards ahead")),
        **_to("go forward", *_pairs("go move walk", "straight straight_ahead straight_forward")),
        **_to("pick up", "pick", "grab", "get", "take", "collect"),
        **_to("drop", "put down", "place down", "release", "let go"),
        **_to("toggle", "open", "close", "unlock", "use", "interact", "interact with"),
    },
    objects=re.compile(
        r" (?:it|(?:locked |closed )?(?:(?:red|green|blue|purple|yellow|grey) )?"
        r"(?:key|ball|box|door|object|item))\b"
    ),
)

BABAISAI = Family(
    actions=("idle", "up", "right", "down", "left"),
    default="idle",
    near_misses=_to("idle", "wait", "stay", "stay still", "noop", "no op", "do nothing", "pass")
    | {
        phrase: way
        for way in ("up", "right", "down", "left")
        for phrase in [
            *(f"{way}ward", f"{way}wards"),
            *_pairs(
                "go move step walk push take_step take_one_step",
                f"{way} to_{way} {way}ward {way}wards",
            ),
        ]
    },
)


def _crafter_ways() -> dict[str, str]:
    verbs = "move go walk step head run face turn take_step take_one_step"
    ways = {}
    for way, other in dict(north="up", south="down", west="left", east="right").items():
        ways |= _to(f"Move {way.title()}", way, *_pairs(verbs, f"{way} to_{way} {other}"))
    for way, other in itertools.permutations(["north", "south", "west", "east"], 2):
        if {way, other} not in ({"north", "south"}, {"west", "east"}):
            # There is no diagonal step: the first component is taken.
            both = f"{way}_{other} {way}{other}"
            ways |= _to(f"Move {way.title()}", f"{way} {other}", *_pairs(verbs, both))
    return ways


def _crafter_makes() -> dict[str, str]:
    makes = {}
    for action in CRAFTER_ACTIONS:
        if action.startswith("Make"):
            _, material, tool = action.lower().split()
            nouns = f"{material}_{tool} {material}en_{tool}"
            makes |= _to(action, *_pairs("make craft create build", nouns))
    return makes


CRAFTER_ACTIONS = tuple(
    "Noop, Move West, Move East, Move North, Move South, Do, Sleep, Place Stone, Place Table, "
    "Place Furnace, Place Plant, Make Wood Pickaxe, Make Stone Pickaxe, Make Iron Pickaxe, "
    "Make Wood Sword, Make Stone Sword, Make Iron Sword".split(", ")
)
CRAFTER = Family(
    actions=CRAFTER_ACTIONS,
    default="Noop",
    near_misses={
        **_crafter_ways(),
        **_crafter_makes(),
        **_to("Noop", "no op", "do nothing", "wait", "idle", "stay", "stay still"),
        **_to("Sleep", "go to sleep", "rest"),
        **_to("Do", "collect", "mine", "chop", "cut", "drink", "attack", "interact", "eat"),
        **_to("Do", *_pairs("collect gather get harvest", "wood stone coal iron diamond sapling")),
        **_to("Do", *_pairs("collect gather get drink", "water drink")),
        **_to("Do", *_pairs("drink_from", "water lake lakes")),
        **_to("Do", *_pairs("mine dig", "stone coal iron diamond")),
        **_to("Do", *_pairs("chop cut chop_down cut_down", "tree trees wood")),
        **_to("Do", *_pairs("attack defeat kill fight hit", "zombie skeleton cow")),
        **_to("Do", *_pairs("eat", "cow plant ripe_plant")),
        **_to("Place Stone", *_pairs("put put_down", "stone")),
        **_to("Place Table", *_pairs("place put make craft build", "table crafting_table")),
        **_to("Place Furnace", *_pairs("put make craft build", "furnace")),
        **_to("Place Plant", *_pairs("place plant put", "sapling"), "plant"),
    },
)

TOY = Family(actions=("pass", "red", "green", "blue"), default="pass", near_misses={})

FAMILIES = {"babyai": BABYAI, "babaisai": BABAISAI, "crafter": CRAFTER, "toy": TOY}
