"""Scripted players, one per family, from which `models.make` clones the embedded models.

A player's module has TASKS (task -> number of episodes and arguments for Player), perhaps LESSONS
(several such dicts, cloned one after the other), LONGEST_MEMORY (turns of history in a prompt),
perhaps SHORTEST_MEMORY (0 by default), PASSAGES (constant texts, each of which becomes one token)
and Player(task, rng, ...). A Player has an `env`; `start()` is called after each reset;
`respond(text)` returns the response to learn and the response to execute, or None when the player
gives up. Before `start()`, its `memory_length` is set: the turns of history that this episode's
prompts show. What a player remembers from before them a clone could not know.

Players play badly on purpose, so that reinforcement learning has something to teach. Their
arguments say how: `noise` is the share of random actions in what is learnt, and `stray` the share
of turns that execute another, random action, so that the clone knows its way from everywhere.
"""

PLAYERS = {
    "babyai": "models.players.babyai",
    "babyai-memory": "models.players.babyai_memory",
    "babaisai": "models.players.babaisai",
    "babaisai-memory": "models.players.babaisai_memory",
    "crafter": "models.players.crafter",
    "guess": "models.players.guess",
    "calculator": "models.players.calculator",
    "shop": "models.players.shop",
    "frozen-lake": "models.players.frozen_lake",
}
