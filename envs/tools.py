"""An environment whose agent calls tools: Python functions or methods, described by themselves.

A turn is one message of the agent. The tools that it calls are run, and their results are the next
observation. A message without a call is the agent's answer, which `reward` judges.
"""

import json
import string

import gymnasium
from gymnasium.spaces import Text
from transformers.utils import get_json_schema

from envs import tool_calls


class ToolEnv(gymnasium.Env):
    """Base class. A subclass sets `tools`, and defines `question` and `reward`.

    tools: functions with type hints and a docstring, or names of the class's public methods
    """

    tools: tuple = ()
    system = "You solve tasks with tools."
    max_turns = 16
    instruction = ""
    observation_space = Text(max_length=65536, min_length=0, charset=string.printable)
    action_space = Text(max_length=65536, min_length=0, charset=string.printable)

    def __init__(self, max_episode_steps: int | None = None, format_penalty: float = 0.1):
        self.max_turns = max_episode_steps or self.max_turns
        self.format_penalty = format_penalty
        functions = [getattr(self, tool) if isinstance(tool, str) else tool for tool in self.tools]
        self.functions = {function.__name__: function for function in functions}
        self.template = {"tools": [get_json_schema(function) for function in functions]}

    def question(self, seed: int) -> str:
        """Begin an episode; return what the user asks."""
        raise NotImplementedError

    def reward(self, answer: str) -> float:
        """Judge the agent's answer, a message without a call, which ends the episode."""
        raise NotImplementedError

    def pay(self, amount: float) -> None:
        """Add to the reward of this turn; tools may call it."""
        self.owed += amount

    def end(self) -> None:
        """End the episode with this turn, without an answer; tools may call it."""
        self.over = True

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed, options=options)
        self.turns, self.owed, self.over = 0, 0.0, False
        text = self.question(seed)
        return text, self._info(text, [{"role": "user", "content": text}])

    def step(self, response: str):
        self.turns += 1
        valid = True
        try:
            content, calls, at = tool_calls.parse(response)
            action = json.dumps(calls) if calls else content
        except tool_calls.BadCall as error:
            content, calls, at, action, valid = response, [], 0, "", False
            results = [{"role": "user", "content": f"Error: {error}."}]
            self.owed -= self.format_penalty
        reply = {"role": "assistant", "content": content}
        if calls:
            named = [{"type": "function", "function": call} for call in calls]
            reply["tool_calls"] = named
            results = [{"role": "tool", "content": self._run(call)} for call in calls]
        elif valid:
            self.owed += float(self.reward(content))
            self.end()
            results = [{"role": "user", "content": "The episode is over."}]
        text = "\n".join(message["content"] for message in results)
        reward, over, self.owed = self.owed, self.over, 0.0
        success = over and reward > 0
        info = self._info(text, results) | dict(
            reply=reply, said=response, action=action, valid=valid, action_at=at, success=success
        )
        return text, reward, over, self.turns >= self.max_turns and not over, info

    def _run(self, call: dict) -> str:
        try:
            result = self.functions[call["name"]](**call["arguments"])
        except Exception as error:
            return f"Error: {error}"
        return result if isinstance(result, str) else json.dumps(result)

    def _info(self, text: str, messages: list[dict]) -> dict:
        return dict(system=self.system, instruction=self.instruction, kept=text,
                    messages=messages, template=self.template)  # fmt: skip
