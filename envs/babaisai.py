"""The old name of `envs.games.babaisai`, which other tools import."""

from envs.games.babaisai import Level as Level
