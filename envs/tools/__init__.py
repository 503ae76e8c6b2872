"""Environments with tools. `ToolEnv` is the base class of a user's own."""

from envs.tools.tool_env import ToolEnv as ToolEnv
