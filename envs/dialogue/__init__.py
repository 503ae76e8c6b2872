"""Environments in which the agent talks with a user. `Dialogue` is the base class."""

from envs.dialogue.chat_user import ChatUser as ChatUser
from envs.dialogue.dialogue_env import Dialogue as Dialogue
