"""The game of BabaIsAI: cells hold stacks of things, and three text blocks in a row make a rule.

The player moves everything that IS YOU. `Level` is the game and `Level.text` is what the agent
reads; `envs.games.baba_picture` draws a level.
"""

import functools

from common.plugins import UserError

MAX_STEPS = 100
NOUNS = ("baba", "wall", "ball", "key", "door")
PROPERTIES = ("you", "stop", "win", "lose", "push")
TOKENS = {
    *("", "#", "is", "obj:baba", "obj:wall"),
    *(f"noun:{noun}" for noun in NOUNS),
    *(f"prop:{prop}" for prop in PROPERTIES),
    *(f"obj:{noun}:{colour}" for noun in NOUNS[2:] for colour in ("red", "blue", "green")),
}


class Thing:
    """An object, a text block, the border or the ground. Things are compared by identity.

    token: "obj:baba", "obj:key:red", "noun:key", "is", "prop:win", "#" (border), "" (ground)
    noun: the kind of an object, "" for anything else
    word: the word on a text block, "" for anything else
    label: the name in the observation, "" for things that the observation never lists
    """

    __slots__ = ("token", "noun", "word", "is_noun", "label")

    def __init__(self, token: str):
        if token not in TOKENS:
            raise UserError(f"unknown token {token!r}; choices: {', '.join(sorted(TOKENS))}")
        kind, _, name = token.partition(":")
        self.token = token
        self.noun = name.split(":")[0] if kind == "obj" else ""
        self.word = "is" if kind == "is" else name if kind in ("noun", "prop") else ""
        self.is_noun = kind == "noun"
        self.label = f"rule `{self.word}`" if self.word else self.noun.replace("baba", "")


GROUND = Thing("")
NEW_OBJECT = {"ball": "obj:ball:blue", "key": "obj:key:green", "door": "obj:door:red"}


class Level:
    """A map and the state of its game. A cell is an index y * width + x; the border is solid.

    tops: the visible thing of each cell; only visible things move, block, win or form rules
    below: the things under the visible one, from the bottom up; the ground is the first
    you: the cell from which the text counts positions, or None if nothing visible is YOU
    """

    def __init__(self, width: int, height: int):
        self.width = width
        self.height = height
        self.steps = 0
        self.max_steps = MAX_STEPS
        self.tops = [GROUND] * (width * height)
        self.below = [[] for _ in self.tops]
        for cell in range(len(self.tops)):
            if cell % width in (0, width - 1) or cell // width in (0, height - 1):
                self._put(cell, Thing("#"))

    @classmethod
    def from_cells(cls, width: int, height: int, cells: list) -> "Level":
        """Build a level from [x, y, tokens from the bottom up] of each cell that holds things."""
        level = cls(width, height)
        for x, y, stack in cells:
            for token in stack:
                level._put(y * width + x, Thing(token))
        level._read_rules()
        level._find_you()
        return level

    def cells(self) -> list:
        """Return the cells in the format of `from_cells`."""
        cells = []
        for cell, top in enumerate(self.tops):
            if top is not GROUND and top.token != "#":
                stack = [thing.token for thing in [*self.below[cell][1:], top]]
                cells.append([cell % self.width, cell // self.width, stack])
        return cells

    def rules(self) -> list:
        return [[subject, "is", predicate] for subject, predicate in self._rules]

    def step(self, action: str) -> tuple[float, bool]:
        """Take idle, up, right, down or left; return (reward, done).

        The reward is 1 - 0.9 steps / max_steps for a win, -1 for a loss, and 0 otherwise.
        """
        self.steps += 1
        if action != "idle":
            met = self._move_you(action)
            won, lost = met.noun in self._nouns["win"], met.noun in self._nouns["lose"]
            if self._text_moved:
                self._read_rules()
            self._transform()
            self._find_you()
            if won:
                return 1 - 0.9 * self.steps / self.max_steps, True
            if lost:
                return -1.0, True
        return 0.0, self.steps >= self.max_steps

    def _move_you(self, action: str) -> Thing:
        """Move everything that is YOU, row by row; return what the last of them met.

        A mover may land on another one that has not moved yet; the covered one then stays.
        """
        by = {"up": -self.width, "right": 1, "down": self.width, "left": -1}[action]
        you = self._nouns["you"]
        met, moved = GROUND, set()
        for cell, thing in enumerate(self.tops):  # the moves below change self.tops
            if thing.noun in you and thing not in moved:
                met = self._move(cell, by, moved)
        return met

    def _move(self, cell: int, by: int, moved: set[Thing]) -> Thing:
        """Move the visible thing of a cell, pushing what is in the way; return what it met.

        A thing meets what it steps onto, or itself if it cannot move. So with `baba is you` and
        `baba is win`, baba wins by bumping into something.
        """
        mover, goal = self.tops[cell], cell + by
        if self.tops[goal].word or self.tops[goal].noun in self._nouns["push"]:
            self._move(goal, by, moved)
        met = self.tops[goal]
        if met is not GROUND and (not met.noun or met.noun in self._nouns["stop"]):
            return mover
        self._put(goal, self._take(cell))
        moved.add(mover)
        return met

    def _put(self, cell: int, thing: Thing) -> None:
        if thing.word or self.tops[cell].word:
            self._text_moved = True
        self.below[cell].append(self.tops[cell])
        self.tops[cell] = thing

    def _take(self, cell: int) -> Thing:
        thing = self.tops[cell]
        self.tops[cell] = self.below[cell].pop()
        if thing.word or self.tops[cell].word:
            self._text_moved = True
        return thing

    def _read_rules(self) -> None:
        """Find the rules noun-is-noun and noun-is-property: at each `is`, across, then down."""
        tops, self._text_moved = self.tops, False
        self._rules = []  # (subject, predicate)
        self._nouns = {prop: set() for prop in PROPERTIES}  # property -> nouns that have it
        for cell, thing in enumerate(tops):
            if thing.word == "is":
                for by in (1, self.width):
                    subject, predicate = tops[cell - by], tops[cell + by]
                    if subject.is_noun and predicate.word not in ("", "is"):
                        self._rules.append((subject.word, predicate.word))
                        if not predicate.is_noun:
                            self._nouns[predicate.word].add(subject.word)

    def _transform(self) -> None:
        """Apply the rules noun1-is-noun2: put a new noun2 on top of every visible noun1."""
        for subject, noun in self._rules:
            if noun in NOUNS:
                for cell, thing in enumerate(self.tops):
                    if thing.noun == subject:
                        self._put(cell, Thing(NEW_OBJECT.get(noun, f"obj:{noun}")))

    def _find_you(self) -> None:
        """Find the first visible object of the last YOU rule; other YOU rules are ignored."""
        you = [subject for subject, predicate in self._rules if predicate == "you"][-1:]
        self.you = next((cell for cell, thing in enumerate(self.tops) if thing.noun in you), None)

    def text(self) -> str:
        """Return the observation: rules with properties, then visible things, row by row."""
        rules = [f"{subject} is {word}" for subject, word in self._rules if word in PROPERTIES]
        head = "Active rules:\n" + "\n".join(rules) + "\n\n"
        if self.you is None:
            return head + "Nothing on the map is YOU any more. You have lost."
        width, (y, x) = self.width, divmod(self.you, self.width)
        lines = [
            _line(thing.label, cell % width - x, cell // width - y)
            for cell, thing in enumerate(self.tops)
            if thing.label
        ]
        return head + "Objects on the map:\n" + "\n".join(lines)


@functools.cache
def _line(label: str, dx: int, dy: int) -> str:
    """Return a name and a position, or an empty line at (0, 0), as the benchmark does."""
    across = f"{_steps(dx)} to the {'right' if dx > 0 else 'left'}" if dx else ""
    along = f"{_steps(dy)} {'down' if dy > 0 else 'up'}" if dy else ""
    position = " and ".join(part for part in (across, along) if part)
    return f"{label} {position}" if position else ""


def _steps(offset: int) -> str:
    """Return a distance in the benchmark's English: it writes "2 steps down" but "2 step up"."""
    return f"{abs(offset)} {'steps' if offset > 1 else 'step'}"
