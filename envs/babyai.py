"""The old name of `envs.games.babyai`, which other tools import."""

from envs.games.babyai import describe as describe
