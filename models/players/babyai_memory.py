"""The BabyAI player that remembers as much as the prompts from which its clone learns show.

Two things become better with the length of the memory. A thing that is out of sight, but that one
of these observations shows, the player finds again: it says where it saw it, and does not walk
straight on. And each turn in a row that it remembers to have shown what it sees now makes it
likelier that it no longer walks straight on in vain. So a clone is the better the more turns its
prompt shows, already before it is trained, and where it needs none it is as good without.

It also has `takes` and `drills`, so the clone knows how to put a wrong thing down.
"""

from models.players import babyai
from models.players.babyai import Player as Player  # of which models.make asks this module

TASKS = {
    "goto": dict(episodes=500, stray=0.4, noise=0.03, known=3, learns=0.005),
    "pickup": dict(episodes=400, stray=0.4, noise=0.03, known=1, learns=0.005),
    "open": dict(episodes=200, stray=0.4, noise=0.03, known=0, learns=0.005),
    "putnext": dict(
        episodes=500, stray=0.4, noise=0.03, known=2, learns=0.005, takes=0.5, drills=0.79
    ),
    "pick-up-seq-go-to": dict(
        episodes=1200, stray=0.4, noise=0.03, known=2, learns=0.005, takes=0.5, drills=0.84
    ),
}
LONGEST_MEMORY = 8
PASSAGES = [
    *babyai.PASSAGES,
    "I saw the",
    *(babyai.again(n) for n in range(1, LONGEST_MEMORY + 1)),
]
