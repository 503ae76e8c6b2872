"""Summaries that the agent writes of turns before they are forgotten, each in a turn of its own."""

from collections.abc import Callable
from statistics import fmean

import gymnasium

from common.chat import after_thought
from common.parts import SUMMARY, marker
from common.shorten import beginning
from envs.text_env import observation_of, step_of
from envs.variants import Variant
from memory.summary import ASK

SHOWN = "Your summary of the turns so far:\n{summary}"
SUMS_UP = "(summary)"  # the action of a turn that executes none


class AsksForSummaries(Variant):
    """Asks for a summary when the memory is due, or when the next turn might exceed the limit.

    The environment waits during such a turn. The turn earns nothing by itself: what follows from
    the summary is its reward, as that of any turn.
    """

    def __init__(self, env: gymnasium.Env, memory: Callable, tokens):
        super().__init__(env)
        self.memory, self.tokens = memory(), tokens
        self.reserve = tokens.count(ASK)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        text, info = self.env.reset(seed=seed, options=options)
        self.waiting, self.summary, self.lengths = None, "", []
        self.speaks = bool(info.get("messages"))
        self.memory.reset(observation_of(text, info))
        self.size, self.growth = self._prompt_size(), 0
        return text, info

    def step(self, response: str):
        if self.waiting:
            return self._take_summary(response)
        text, reward, terminated, truncated, info = self.env.step(response)
        before, info = info, self._with_summary(info)
        self.memory.update(step_of(response, text, reward, terminated, truncated, info))
        if terminated or truncated:
            info = info | {"metrics": info.get("metrics", {}) | self._metrics()}
        elif self._is_due():
            self.waiting = text, before
            text, info = self._asked(text, info)
            self.memory.ask(observation_of(text, info))
        return text, reward, terminated, truncated, info

    def _is_due(self) -> bool:
        """Return whether the turns have to be summed up now."""
        size, self.size = self.size, self._prompt_size()
        self.growth = max(self.growth, self.size - size)
        # Another turn like the longest one must fit, and after it the question for a summary.
        full = self.size + self.growth + self.reserve > self.tokens.prompt_limit
        return self.memory.due or full

    def _take_summary(self, response: str) -> tuple:
        """Return the observation with which the environment waits, and the summary."""
        (text, info), self.waiting = self.waiting, None
        begin, end = marker(response, SUMMARY)
        # Without the marker, all that is said is the summary.
        summary = response[end if begin < end else after_thought(response) :].strip()
        limit = self.tokens.prompt_limit // 2  # the system message and a turn need the rest
        self.summary = beginning(summary, lambda text: self.tokens.count(text) <= limit)
        self.lengths.append(self.tokens.count(self.summary))
        info = self._with_summary(info) | {
            "kept_response": response,
            "action": SUMS_UP,
            "action_at": begin,
            "valid": True,
            "success": False,
            "reply": {"role": "assistant", "content": response} if self.speaks else None,
        }
        self.memory.update(step_of(response, text, 0.0, False, False, info))
        self.size = self._prompt_size()
        return text, 0.0, False, False, info

    def _prompt_size(self) -> int:
        """Return the tokens of the next prompt."""
        chat = self.memory.messages()
        return self.tokens.count(chat, chat.template)

    def _with_summary(self, info: dict) -> dict:
        shown = SHOWN.format(summary=self.summary) if self.summary else ""
        return info | {"system": "\n\n".join(filter(None, (info["system"], shown)))}

    def _asked(self, text: str, info: dict) -> tuple[str, dict]:
        """Return an observation with the question for a summary behind it."""
        messages = list(info.get("messages", ()))
        if messages and messages[-1]["role"] == "user":  # some templates refuse two in a row
            content = f"{messages[-1]['content']}\n\n{ASK}"
            messages[-1] = messages[-1] | {"content": content}
        elif self.speaks:
            messages.append({"role": "user", "content": ASK})
        return f"{text}\n\n{ASK}", info | {"messages": messages}

    def _metrics(self) -> dict[str, float]:
        lengths = {"summary_tokens": fmean(self.lengths)} if self.lengths else {}
        return {"summaries": len(self.lengths)} | lengths
