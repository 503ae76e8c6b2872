"""An environment whose agent calls tools: Python functions or methods with a docstring.

A turn is one message of the agent. Its calls run in their order, and the results are the next
observation. A message without a call goes to the user: by default it is the agent's answer, which
`reward` judges. `docs/tools.md` shows how to write such an environment.
"""

import functools
import json
import string

import gymnasium
from gymnasium.spaces import Text

from common import calls as tool_calls
from envs.contract import breach, check_observation, check_reward
from envs.tools.toolbox import Toolbox

COUNTS = ("parse_failures", "unknown_tools", "tool_errors", "shortened_results")


class ToolEnv(gymnasium.Env):
    """Base class. A subclass sets `tools`, and defines `question` and `reward`.

    Its own `__init__` need not call this one, which only stores options of the command line.

    tools: functions with type hints and a docstring, or names of the class's public methods
    system: the system message; an empty one is left out
    max_turns: turns after which an episode is truncated
    max_calls: at most so many calls of a message are run
    tool_timeout: time limit of a call in seconds; 0: no limit, and tools run in the calling thread
    max_result_characters: longer results lose their middle
    format_penalty: subtracted from the reward of a turn whose message cannot be parsed
    """

    tools: tuple = ()
    system = "You solve tasks with tools."
    max_turns = 16
    max_calls = 8
    tool_timeout = 20.0
    max_result_characters = 8000
    format_penalty = 0.1
    speaks_messages = True  # `envs.foreign` then passes the whole response
    tasks = ()
    instruction = ""
    observation_space = Text(max_length=65536, min_length=0, charset=string.printable)
    action_space = Text(max_length=65536, min_length=0, charset=string.printable)

    def __init__(self, max_episode_steps: int | None = None, format_penalty: float = 0.1):
        self.max_turns = max_episode_steps or self.max_turns
        self.format_penalty = format_penalty

    # A subclass defines these two.

    def question(self, seed: int) -> str:
        """Begin an episode; return the user's question. It may draw from self.np_random."""
        raise NotImplementedError

    def reward(self, answer: str) -> float:
        """Judge the agent's answer, which ends the episode."""
        raise NotImplementedError

    # A subclass may override these.

    def answered(self, text: str) -> str | None:
        """Return the user's reply to a message without a call; None: the message is the answer."""
        return None

    def limit_reached(self) -> float:
        """Return a reward for the last turn of an episode that ran out of turns."""
        return 0.0

    def succeeded(self, reward: float) -> bool:
        """Return whether an episode that was not truncated is a success.

        reward: the reward of its last turn
        """
        return reward > 0

    def episode_metrics(self) -> dict[str, float]:
        """Return more metrics of the episode that just ended, logged as `rollout/<name>`."""
        return {}

    # Tools and `answered` may call these two; `reward` and `limit_reached` may call `pay`.

    def pay(self, amount: float) -> None:
        """Add to the reward of this turn."""
        check_reward(self, "pay", amount)
        self.turn_reward += float(amount)

    def end(self) -> None:
        """End the episode with this turn, without an answer."""
        self.over = True

    @functools.cached_property
    def toolbox(self) -> Toolbox:
        """The tools, made when they are first needed. BrokenContract: one of them is invalid"""
        for method in ("question", "reward"):
            if getattr(type(self), method) is getattr(ToolEnv, method):
                raise breach(self, method, "is missing: a class with tools must define it")
        toolbox = Toolbox(self)
        for name, tool in toolbox.functions.items():
            if hasattr(ToolEnv, name) and getattr(tool, "__self__", None) is self:
                raise breach(self, name, "cannot be a tool: ToolEnv itself has this name")
        return toolbox

    @property
    def template(self) -> dict:
        """The arguments of the chat template."""
        return {"tools": list(self.toolbox.schemas.values())}

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.toolbox.counts.clear()
        self.turns, self.turn_reward, self.over = 0, 0.0, False
        seed = int(self.np_random.integers(2**31)) if seed is None else seed
        text = self.toolbox.run(self.question, seed)
        check_observation(self, "question", text)
        return text, self._info(text, [{"role": "user", "content": text}])

    def step(self, response: str):
        self.turns += 1
        message = tool_calls.read(response)
        reply, answers = self._take(message)
        truncated = self.turns >= self.max_turns and not self.over
        if truncated:
            self._add_reward("limit_reached")
            self.over = False  # the episode stays truncated even if limit_reached called end()
        reward, self.turn_reward = self.turn_reward, 0.0
        text = "\n".join(answer["content"] for answer in answers)
        info = self._info(text, answers) | {
            "reply": reply,
            "kept_response": response,
            "action": action(message),
            "action_at": message.at,
            "valid": not message.error,
            "success": self.over and bool(self.toolbox.run(self.succeeded, reward)),
        }
        if self.over or truncated:
            info["metrics"] = self._metrics()
        if message.error:
            reward -= self.format_penalty
        return text if text.strip() else "(empty)", reward, self.over, truncated, info

    def close(self) -> None:
        if "toolbox" in vars(self):
            self.toolbox.thread.close()

    def _take(self, message: tool_calls.Message) -> tuple[dict, list[dict]]:
        """Return the agent's message as a chat message, and the messages that answer it."""
        reply = {"role": "assistant", "content": message.content}
        if message.error:
            self.toolbox.counts["parse_failures"] += 1
            return reply, [{"role": "user", "content": f"Error: {message.error}."}]
        if not message.calls:
            return reply, [{"role": "user", "content": self._user_reply(message.answer)}]
        reply["tool_calls"], answers = [], []
        results = self.toolbox.answer(message.calls)
        for k, (call, result) in enumerate(zip(message.calls, results, strict=True)):
            # A replay must give the same id, and templates that show it want nine characters.
            call_id = f"call{self.turns % 1000:03d}{k % 100:02d}"
            function = {"name": call["name"], "arguments": call["arguments"]}
            reply["tool_calls"].append({"type": "function", "id": call_id, "function": function})
            answers.append(
                {"role": "tool", "name": call["name"], "tool_call_id": call_id, "content": result}
            )
        return reply, answers

    def _user_reply(self, text: str) -> str:
        """Return the user's reply to a message without a call."""
        reply = self.toolbox.run(self.answered, text)
        if reply is None:
            self._add_reward("reward", text)
            self.end()
            return "The episode is over."
        check_observation(self, "answered", reply)
        return reply

    def _add_reward(self, method: str, *arguments: str) -> None:
        reward = self.toolbox.run(getattr(self, method), *arguments)
        check_reward(self, method, reward)
        self.turn_reward += float(reward)

    def _metrics(self) -> dict[str, float]:
        counts = self.toolbox.counts
        metrics = {name: counts[name] for name in COUNTS}
        metrics["tool_calls_per_turn"] = counts["tool_calls"] / self.turns
        own = self.toolbox.run(self.episode_metrics)
        if not isinstance(own, dict):
            raise breach(self, "episode_metrics", f"returned {own!r:.80}; it must return a dict")
        return metrics | own

    def _info(self, text: str, messages: list[dict]) -> dict:
        return {
            "system": self.system,
            "instruction": self.instruction,
            "kept": text or "(empty)",
            "messages": messages,
            "template": self.template,
        }


def action(message: tool_calls.Message) -> str:
    """Return the turn's action for logs: the calls as JSON, or the answer."""
    calls = [{"name": call["name"], "arguments": call["arguments"]} for call in message.calls]
    return json.dumps(calls, ensure_ascii=False) if calls else message.answer
