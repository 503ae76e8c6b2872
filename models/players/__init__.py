"""Scripted players, one per family, from which `models.make` clones the embedded models.

A player's module defines

    TASKS: task -> number of episodes and arguments of Player
    LESSONS, optional: several such dicts, cloned one after the other
    LONGEST_MEMORY, and optionally SHORTEST_MEMORY (default 0): turns of history in a prompt
    MEMORIES, in their place: pairs (memory, length), which episodes take in turn; the Player then
        gets the messages of a prompt, `respond(messages)`, and knows only what they say
    PASSAGES: constant texts, each of which becomes one token
    Player(task, rng, ...): has `env`, `start()`, which is called after each reset, and
        `respond(text)`, which returns the response to learn and the response to execute, or None to
        give up. Its `memory_length`, the turns of history in this episode's prompts, is set before
        `start()`: a clone cannot know what happened earlier.

Players play badly on purpose, so that reinforcement learning has something to teach. Of their
arguments, `noise` is the share of random actions among the learnt ones, and `stray` is the share of
turns that execute another, random action, so that the clone sees states off the player's way.
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
    "errands": "models.players.errands",
    "summarising": "models.players.summarising",
}
