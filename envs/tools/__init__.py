"""Environments whose agent calls tools. `ToolEnv` is the base class."""

from envs.tools.tool_env import ToolEnv as ToolEnv
