"""Scripted players, from which `models.make` clones the embedded models: a family each.

A module has TASKS (task -> episodes and what its Player is given), LONGEST_MEMORY (turns in its
prompts), PASSAGES (constant texts, which become one token each) and a class Player(task, rng, ...)
with an `env`, `start()` after each reset and `respond(text)`: the response to learn and the one to
execute, or None to give up. They play badly on purpose, so that reinforcement learning has
something to teach.
"""

PLAYERS = {
    "babyai": "models.players.babyai",
    "babaisai": "models.players.babaisai",
    "crafter": "models.players.crafter",
}
