"""Plays an episode of a program of examples/frameworks/ with the responses that solve its question.

It answers as the program wants it: with calls of its tools, or in the text formats of frameworks
that read calls and answers from texts.
"""

import json
import re

from envs import make_env
from envs.agents.dialect import DIALECTS
from envs.errors import fault_of
from envs.text_env import act, begin
from envs.tools.calculator import Calculator, compute

SEED, MOST_TURNS, SECONDS = 6, 16, 60
PATHS = {dialect: path.removeprefix("/v1/") for path, dialect in DIALECTS.items()}
FLAGS = {"refuse": "", "run": "`--endpoint-sampling run`"}


def play(name: str) -> dict:
    """Return what the program asked for, and whether it came to the right result:

    paths, tools, parallel: see docs/frameworks.md; flag: that it needed, or ""
    error: why it did not
    """
    error = ""
    for sampling, flag in FLAGS.items():
        seen = {"paths": [], "tools": "no", "parallel": "no", "flag": flag}
        env = make_env(name, timeout=SECONDS, sampling=sampling)
        try:
            outcome = _play(env, seen)
        except Exception as failure:
            outcome = fault_of(failure).error
        finally:
            env.close()
        if not outcome:
            return seen
        error = error or outcome
    return seen | {"error": error[:200]}


def _play(env, seen: dict) -> str:
    """Play the episode; return why it failed, or ""."""
    player, observation = Player(), begin(env, SEED)
    for _ in range(MOST_TURNS):
        call = env.unwrapped.call
        if PATHS[call.dialect] not in seen["paths"]:
            seen["paths"].append(PATHS[call.dialect])
        response, results = player.respond(call.request)
        step = act(env, response)
        before, observation = len(observation.messages), step.observation
        new = observation.messages[before:] or observation.messages[-1:]
        given = [message["content"] for message in new]
        came = [any(re.search(rf"\b{result}\b", text) for text in given) for result in results]
        if any(came):
            seen["tools"] = "yes" if call.request.tools else "text"
        if sum(came) == 2:
            seen["parallel"] = "yes"
        if step.done:
            right = step.terminated and step.reward == 1
            return "" if right else f"{observation.text} (reward {step.reward:g})"
    return f"it asks on after {MOST_TURNS} turns"


class Player:
    """Solves the question of SEED."""

    def __init__(self):
        self.task = Calculator()
        self.task.reset(seed=SEED)
        self.value, self.left = self.task.start, list(self.task.chain)
        self.handed_over = False

    def respond(self, request) -> tuple[str, list[int]]:
        """Return a response and the results of its calls of the calculator."""
        tools, shown = request.tools, json.dumps(request.messages)
        calculator = next((name for name, tool in tools.items() if _takes(tool, "operation")), None)
        if self.left and calculator:
            asked = [self._next() for _ in self.left[:2]]
            calls = [_written(calculator, arguments) for arguments in asked]
            return "\n".join(calls), [compute(**arguments) for arguments in asked]
        if transfer := [name for name in tools if name.startswith("transfer_to")]:
            if not self.handed_over:
                self.handed_over = True
                return _written(transfer[0], {}), []
        if "next_tool_name" in shown:  # DSPy's ReAct
            return self._field_step()
        if "[[ ## answer ## ]]" in shown:
            return f"[[ ## reasoning ## ]]\nDone.\n\n[[ ## answer ## ]]\n{self._solved()}", []
        for name, tool in tools.items():  # a tool for the answer
            for key in ("answer", "response", "result"):
                if _takes(tool, key):
                    return _written(name, {key: self._solved()}), []
        if '"title": "Answer"' in shown.replace("\\", ""):
            return f'```json\n{{"result": {self._solved()}}}\n```', []
        return f"ANSWER: {self._solved()}", []

    def _next(self) -> dict:
        operation, b = self.left.pop(0)
        arguments = {"a": self.value, "operation": operation, "b": b}
        self.value = compute(self.value, operation, b)
        return arguments

    def _solved(self) -> int:
        while self.left:
            self._next()
        return self.value

    def _field_step(self) -> tuple[str, list[int]]:
        name, arguments = ("calculate", self._next()) if self.left else ("finish", {})
        fields = {"next_thought": "On.", "next_tool_name": name}
        fields |= {"next_tool_args": json.dumps(arguments)}
        text = "\n\n".join(f"[[ ## {key} ## ]]\n{field}" for key, field in fields.items())
        return text, [compute(**arguments)] if arguments else []


def _takes(tool: dict, name: str) -> bool:
    return name in tool["function"].get("parameters", {}).get("properties", {})


def _written(name: str, arguments: dict) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
