"""The old name of `envs.games.baba_levels`, which other tools import."""

from envs.games.baba_levels import PLANS as PLANS
from envs.games.baba_levels import generate as generate
