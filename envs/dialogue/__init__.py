"""Environments in which somebody answers. `Dialogue` is the base class of a user's own."""

from envs.dialogue.dialogue_env import ChatUser as ChatUser
from envs.dialogue.dialogue_env import Dialogue as Dialogue
