"""A player of the errands that acts on what its prompt says, and on nothing else.

It walks, rings and answers well as long as its prompt tells the errands: by the list itself, by its
notes or by a summary. Else it rings at the next place, and says any word. Its notes are bad: it
often writes down nothing of the list, and sometimes it loses a part of it. At doors it often says
any word, though it thinks of the right one. So a clone has to learn what to write, and with every
memory to do what it thinks.
"""

import re

from envs.asking.notes import NOTES_LINE
from envs.games.errands import ASKS, ONCE, PLACES, RULES, THANKS, TOLD, WORDS, Errands
from envs.text_env import THINK_ACT
from memory.summary import ASK
from models.players.reading import NOTES, SUMMARY, TO_DO, UNKNOWN, Writer, left_of

WRITING = dict(noise=0.02, slips=0.5, begins=0.5, keeps=0.97, stray=0.7)
TASKS = {"6": dict(episodes=1000) | WRITING, "12": dict(episodes=1000) | WRITING}
# Memory and length, in turn from episode to episode
MEMORIES = [
    *(("window", 1), ("window", 4), ("window", 8), ("full", 0)),
    *(("action", 8), ("periodic", 8), ("notes", 1), ("summary", 8)),
]
ERRAND = re.compile(rf"({'|'.join(PLACES)}) ({'|'.join(WORDS)})")
HERE = re.compile(r"You are at the (\w+)\.")
# Names have a blank before them wherever they stand, so that each is one token everywhere. A place
# with its side is one, too: a small model learns at once to find it among the ways by its place,
# and hardly in thousands of steps to find the token behind that of the place.
NAMES = (*PLACES, *WORDS, "east", "west", "here", UNKNOWN)
PASSAGES = [
    *("Observation:\n", "Current Observation:\n", RULES, f".\n{ONCE}\n", ASKS, THANKS, ASK),
    *(THINK_ACT, f"\n\n{THINK_ACT}", NOTES_LINE, NOTES, SUMMARY, TOLD.rstrip(), "\nWays:"),
    *("You are at the", "You are on the street.", "THINK:", "\nNOTES:", "\nACTION:"),
    *("THINK: I sum up.\nSUMMARY:", TO_DO, f" {TO_DO}"),
    *(f" {name}" for name in NAMES),
    *(f" {place} {side}" for place in PLACES for side in ("east", "west", "here")),
    *(f" {steps}" for steps in range(1, 10)),
]


class Player:
    """noise: share of random actions; slips: share of answers at doors that are any word; the
    others are those of `reading.Writer`"""

    def __init__(self, task: str, rng, noise=0.0, slips=0.0, **writing):
        self.env, self.rng, self.noise, self.slips = Errands(task), rng, noise, slips
        self.writer = Writer(rng, **writing)

    def start(self) -> None:
        """An episode has begun; the player knows only prompts."""

    def respond(self, messages: list[dict]) -> tuple[str, str]:
        left = left_of(messages, TOLD, ERRAND, THANKS)
        text = messages[-1]["content"]
        side, action = self.act(text, left)
        remaining = left[1:] if left and action.startswith("say") else left
        thought = f"{left[0][0]} {side}, {left[0][1]}" if left else UNKNOWN
        learnt = action
        if action.startswith("say") and self.rng.random() < self.slips:
            learnt = f"say {self.rng.choice(WORDS)}"
        if self.rng.random() < self.noise:
            learnt = str(self.rng.choice(self.env.actions))
        return self.writer.respond(messages, left, remaining, thought, (learnt, action))

    def act(self, text: str, left: list[tuple[str, str]] | None) -> tuple[str, str]:
        """Return where the next errand is, and the action that suits an observation."""
        place, word = left[0] if left else (None, str(self.rng.choice(WORDS)))
        ways = text.partition("\nWays: ")[2].partition("\n")[0]
        here = HERE.search(text)
        if here and place in (None, here[1]):
            return "here", f"say {word}" if ASKS in text else "ring"
        side = "east" if f"{place or ''} east" in ways else "west"
        return side, f"go {side}"
