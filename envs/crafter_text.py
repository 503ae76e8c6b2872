"""The old name of `envs.games.crafter_text`, which other tools import."""

from envs.games.crafter_text import describe as describe
