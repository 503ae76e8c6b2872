"""The BabyAI player that remembers the turns of its prompt, as its clone does.

A longer memory helps it in two ways. It finds a thing that is out of sight but was visible in one
of the remembered observations: its thought names the position, and it does not walk straight on.
And while it is stuck, at a wall or in front of a thing that it should use, all observations are
equal. Its thought counts them, and with some colours it plays well once the count is high enough,
if it remembers so many turns. So the untrained clone already plays better the more turns its prompt
shows.

It also has `takes` and `drills`, so the clone knows how to put down a wrong thing.
"""

from models.players import babyai
from models.players.babyai import Player as Player  # which models.make looks for in this module
from models.players.distances import distances
from models.players.repeats import again

# With these numbers of turns, each of the memory lengths 1, 2, 4 and 8 suffices for one colour more
# than the length before.
LEARNS = (1, 2, 3, 5)
TASKS = {
    "goto": dict(episodes=600, stray=0.4, noise=0.03, known=2, learns=LEARNS),
    "pickup": dict(episodes=800, stray=0.4, noise=0.03, known=1, learns=LEARNS),
    # doors have the first, second, fourth and last of the six colours
    "open": dict(episodes=300, stray=0.4, noise=0.03, known=0, learns=(1, 2, 2, 3, 3, 5)),
    "putnext": dict(
        episodes=500, stray=0.4, noise=0.03, known=1, learns=LEARNS, takes=0.5, drills=0.79
    ),
    "pick-up-seq-go-to": dict(
        episodes=1200, stray=0.4, noise=0.03, known=1, learns=LEARNS, takes=0.5, drills=0.79
    ),
}
LONGEST_MEMORY = 8
FARTHEST = 6  # steps, the largest distance in a view of 7 x 7 cells
# With whole distances as tokens, prompts and responses are a third shorter.
PASSAGES = [
    *(*babyai.FIXED, " I do not see the", " I saw the", "a wall", "You carry a"),
    *distances(babyai.WAYS, FARTHEST),
    *(again(n) for n in range(1, LONGEST_MEMORY + 1)),
]
