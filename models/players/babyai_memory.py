"""The BabyAI player that remembers as much as the prompts from which its clone learns show.

Two things become better with the length of the memory. A thing that is out of sight, but that one
of these observations shows, it finds again: it says where it saw it, and does not walk straight on.
And while it walks straight on in vain, at a wall or in front of a thing that it should use, it sees
the same in each turn. It says so, and with some colours it plays well as soon as it has seen the
same often enough, if it remembers so many turns. So the clone is the better the more turns its
prompt shows, already before it is trained.

It also has `takes` and `drills`, so the clone knows how to put a wrong thing down.
"""

from models.players import babyai
from models.players.babyai import Player as Player  # which models.make looks for in this module
from models.players.distances import distances
from models.players.repeats import again

# With these numbers of turns, each of the lengths 1, 2, 4 and 8 is enough for one colour more than
# the length before.
LEARNS = (1, 2, 3, 5)
TASKS = {
    "goto": dict(episodes=600, stray=0.4, noise=0.03, known=2, learns=LEARNS),
    "pickup": dict(episodes=800, stray=0.4, noise=0.03, known=1, learns=LEARNS),
    # of the six colours, these doors have the first, second, fourth and last
    "open": dict(episodes=300, stray=0.4, noise=0.03, known=0, learns=(1, 2, 2, 3, 3, 5)),
    "putnext": dict(
        episodes=500, stray=0.4, noise=0.03, known=1, learns=LEARNS, takes=0.5, drills=0.79
    ),
    "pick-up-seq-go-to": dict(
        episodes=1200, stray=0.4, noise=0.03, known=1, learns=LEARNS, takes=0.5, drills=0.79
    ),
}
LONGEST_MEMORY = 8
FARTHEST = 6  # steps that an observation shows: it is of 7 x 7 squares
# With whole distances as tokens, a prompt and a response are a third shorter.
PASSAGES = [
    *(*babyai.FIXED, " I do not see the", " I saw the", "a wall", "You carry a"),
    *distances(babyai.WAYS, FARTHEST),
    *(again(n) for n in range(1, LONGEST_MEMORY + 1)),
]
