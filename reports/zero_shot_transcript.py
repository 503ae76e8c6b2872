"""Collects what the zero-shot check counts: reasoning, actions and failures of every turn.

With tools or users, the actions are the names of the called tools, and the reasoning is the text
before the first call. `zero_shot` computes the figures and writes the report.
"""

import itertools
import re
from collections import Counter

from ppo.engines.text import action_token
from reports.exchange import call_text, calls_of

REPEATS = 3  # turns in a row with the same action and the same observation
MAX_EXAMPLE = 400  # characters of a text in an example
NO_CALL = "message without a call"
UNREADABLE = "message that could not be parsed"
NO_MARKER = "no ACTION marker"
FAILURE_KINDS = {  # kind -> unit that it is counted in
    NO_MARKER: "turns",
    "invalid action": "turns",
    "response cut by the limit": "turns",
    "history dropped from the prompt": "turns",
    f"same action, same observation, {REPEATS} times or more": "turns",
    "time limit reached": "episodes",
    "terminated without success": "episodes",
    "environment failed": "episodes",
}


class Transcript:
    """Collects the reasoning and action of every turn, and an example of each kind of failure."""

    def __init__(self):
        self.thoughts: list[str] = []
        self.lengths: list[int] = []  # tokens of reasoning, per turn
        self.actions = Counter()  # executed actions, or every tool call of a turn
        self.messages = 0  # turns whose response is a chat message; it needs no ACTION marker
        self.failures = Counter()
        self.examples: dict[str, dict] = {}
        self.valid = self.episodes = 0
        # environment -> last observation, last action, equal turns in a row so far
        self.last: dict[int, tuple[str, str, int]] = {}

    def add(self, n: int, response, step) -> None:
        """Add a turn of environment n: the engine's Response and the environment's Step."""
        observation, action, streak = self.last.get(n, ("", "", 0))
        same = (observation, action) == (step.observation.text, step.action)
        streak = streak + 1 if same else 1
        following = step.first if step.done else step.observation
        following = following.text if following is not None else ""
        self.last[n] = (following, step.action, 0 if step.done else streak)
        self.thoughts.append(reasoning_of(response.text, step.action_at))
        self.lengths.append(action_token(response.pieces, response.text, step.action_at))
        self.valid += step.valid
        self.episodes += step.done
        self.actions.update([] if step.fault else actions_of(step))
        self.messages += step.reply is not None or bool(step.fault)  # a fault has no reply
        for kind in failures_of(response, step, streak):
            self.failures[kind] += 1
            if not self.examples.get(kind, {}).get("observation"):  # replace one without it
                self.examples[kind] = {
                    "seed": step.seed,
                    "turn": step.number,
                    "observation": observation[:MAX_EXAMPLE],
                    "response": response.text[:MAX_EXAMPLE],
                    "executed": executed_text(step)[:MAX_EXAMPLE],
                    "fault": step.fault,
                }


def actions_of(step) -> list[str]:
    """Return the action of a turn, or the name of each called tool."""
    if step.reply is None:
        return [step.action]
    names = [call["name"] for call in calls_of(step.reply)]
    return names or [NO_CALL if step.valid else UNREADABLE]


def executed_text(step) -> str:
    """Return the action of a turn, or its tool calls, one per line."""
    calls = calls_of(step.reply)
    return "\n".join(map(call_text, calls)) if calls else step.action


def reasoning_of(text: str, action_at: int) -> str:
    """Return the text before the ACTION marker or the first call, in one line.

    The word THINK and <think> tags are removed.
    """
    reasoning = re.sub("</?think>", " ", text[:action_at])
    return " ".join(re.sub(r"^\W*think\W*", "", reasoning, flags=re.I).split())


def failures_of(response, step, streak: int) -> list[str]:
    """Return the FAILURE_KINDS that apply to a turn, or to the episode that ended with it."""
    applies = [
        step.reply is None and step.action_at >= len(response.text),
        not step.valid,
        response.truncated,
        response.prompt.overflow,
        streak >= REPEATS,
        step.truncated and not (step.terminated or step.success or step.fault),
        step.terminated and not step.success,
        bool(step.fault),
    ]
    return list(itertools.compress(FAILURE_KINDS, applies))
