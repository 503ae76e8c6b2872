"""An environment whose agent calls tools: Python functions or methods, described by themselves.

A turn is one message of the agent. The tools that it calls are run in their order, and the results
are the next observation. A message without a call is what the agent says to the user: by default
its answer, which `reward` judges. `docs/tools.md` shows how to write one.
"""

import functools
import json
import string

import gymnasium
from gymnasium.spaces import Text

from common import calls as tool_calls
from envs.contract import breach, check_observation, check_reward
from envs.tools.toolbox import Toolbox

COUNTS = "parse_failures", "unknown_tools", "tool_errors", "shortened_results"


class ToolEnv(gymnasium.Env):
    """Base class. A subclass sets `tools`, and defines `question` and `reward`.

    Its own `__init__` need not call this one, which only takes the options of the command line.

    tools: functions with type hints and a docstring, or names of the class's public methods
    system: the system message; empty: there is none
    max_turns: turns after which an episode is truncated
    max_calls: calls of one message that are run
    tool_timeout: seconds that a call may take; 0: no limit, and no thread of their own for tools
    max_result_characters: longer results lose their middle
    format_penalty: subtracted from the reward of a turn whose message cannot be read
    """

    tools: tuple = ()
    system = "You solve tasks with tools."
    max_turns = 16
    max_calls = 8
    tool_timeout = 20.0
    max_result_characters = 8000
    format_penalty = 0.1
    speaks_messages = True  # so `envs.foreign` hands it the whole response
    tasks = ()
    instruction = ""
    observation_space = Text(max_length=65536, min_length=0, charset=string.printable)
    action_space = Text(max_length=65536, min_length=0, charset=string.printable)

    def __init__(self, max_episode_steps: int | None = None, format_penalty: float = 0.1):
        self.max_turns = max_episode_steps or self.max_turns
        self.format_penalty = format_penalty

    # A subclass defines these two,

    def question(self, seed: int) -> str:
        """Begin an episode; return what the user asks. It may use self.np_random."""
        raise NotImplementedError

    def reward(self, answer: str) -> float:
        """Judge the agent's answer, which ends the episode."""
        raise NotImplementedError

    # and may replace these.

    def answered(self, text: str) -> str | None:
        """Return what the user says to a message without a call; None: it is the answer."""
        return None

    def limit_reached(self) -> float:
        """Return a reward for the last turn of an episode that ran out of turns."""
        return 0.0

    def succeeded(self, reward: float) -> bool:
        """Return whether an episode that was not cut is a success. reward: its last turn's"""
        return reward > 0

    def episode_metrics(self) -> dict[str, float]:
        """Return more figures of the episode that just ended, logged as `rollout/<name>`."""
        return {}

    # Its tools and `answered` may call these two, and `reward` and `limit_reached` the first.

    def pay(self, amount: float) -> None:
        """Add to the reward of this turn."""
        check_reward(self, "pay", amount)
        self.owed += float(amount)

    def end(self) -> None:
        """End the episode with this turn, without an answer."""
        self.over = True

    @functools.cached_property
    def toolbox(self) -> Toolbox:
        """The tools, made when they are first needed. BrokenContract: one of them is wrong"""
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
        """Arguments of the chat template."""
        return {"tools": list(self.toolbox.schemas.values())}

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.toolbox.counts.clear()
        self.turns, self.owed, self.over = 0, 0.0, False
        seed = int(self.np_random.integers(2**31)) if seed is None else seed
        text = self.toolbox.run(self.question, seed)
        check_observation(self, "question", text)
        return text, self._info(text, [{"role": "user", "content": text}])

    def step(self, response: str):
        self.turns += 1
        message = tool_calls.read(response)
        reply, answers = self._take(message)
        cut = self.turns >= self.max_turns and not self.over
        if cut:
            self._earn("limit_reached")
            self.over = False  # it was cut, whatever this method said
        reward, self.owed = self.owed, 0.0
        text = "\n".join(answer["content"] for answer in answers)
        info = self._info(text, answers) | {
            "reply": reply,
            "said": response,
            "action": action(message),
            "action_at": message.at,
            "valid": not message.error,
            "success": self.over and bool(self.toolbox.run(self.succeeded, reward)),
        }
        if self.over or cut:
            info["metrics"] = self._metrics()
        if message.error:
            reward -= self.format_penalty
        return text if text.strip() else "(empty)", reward, self.over, cut, info

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
            return reply, [{"role": "user", "content": self._hear(message.answer)}]
        reply["tool_calls"], answers = [], []
        results = self.toolbox.answer(message.calls)
        for k, (call, result) in enumerate(zip(message.calls, results, strict=True)):
            # The same in a replay. Templates that show it want nine letters and digits.
            number = f"call{self.turns % 1000:03d}{k % 100:02d}"
            function = {"name": call["name"], "arguments": call["arguments"]}
            reply["tool_calls"].append({"type": "function", "id": number, "function": function})
            named = {"role": "tool", "name": call["name"], "tool_call_id": number}
            answers.append(named | {"content": result})
        return reply, answers

    def _hear(self, text: str) -> str:
        """Return what the user says to a message without a call."""
        said = self.toolbox.run(self.answered, text)
        if said is None:
            self._earn("reward", text)
            self.end()
            return "The episode is over."
        check_observation(self, "answered", said)
        return said

    def _earn(self, method: str, *words: str) -> None:
        reward = self.toolbox.run(getattr(self, method), *words)
        check_reward(self, method, reward)
        self.owed += float(reward)

    def _metrics(self) -> dict[str, float]:
        counts = self.toolbox.counts
        ours = {name: counts[name] for name in COUNTS}
        ours["tool_calls_per_turn"] = counts["tool_calls"] / self.turns
        more = self.toolbox.run(self.episode_metrics)
        if not isinstance(more, dict):
            raise breach(self, "episode_metrics", f"returned {more!r:.80}; it must return a dict")
        return ours | more

    def _info(self, text: str, messages: list[dict]) -> dict:
        return dict(system=self.system, instruction=self.instruction, kept=text or "(empty)",
                    messages=messages, template=self.template)  # fmt: skip


def action(message: tool_calls.Message) -> str:
    """How logs show what the agent did: the calls as JSON, or the answer."""
    calls = [{"name": call["name"], "arguments": call["arguments"]} for call in message.calls]
    return json.dumps(calls, ensure_ascii=False) if calls else message.answer
