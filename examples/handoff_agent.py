"""Two agents that hand over to one another: a triage without tools, and one with a calculator.

A caller comes back with a calculation that was left before its last step. The triage has only to
pass the conversation on, by its one tool or by a few words. If it reaches for the calculator, which
it does not have, the program breaks: the KeyError is the policy's failure, and it learns to let the
calculator be until the other agent is asked.

    python main.py --env-name agent:examples.handoff_agent:solve

Each agent has its own system message and tools, and both are the policy. The triage's response is
paid by its id when its worth is known: half of the reward, if the answer is right.

It needs `pip install openai`.
"""

import json
from dataclasses import dataclass

from openai import OpenAI

from envs.tools.calculator import Calculator, compute

TURNS = 6
TRANSFER = {
    "type": "function",
    "function": {
        "name": "transfer_to_calculator",
        "description": "Pass the caller on.",
        "parameters": {"type": "object", "properties": {}},
    },
}


@dataclass(frozen=True)
class Agent:
    system: str
    tools: tuple[dict, ...]

    def ask(self, client: OpenAI, conversation: list):
        """Return a completion of what the policy says in this agent's place."""
        messages = [{"role": "system", "content": self.system}, *conversation]
        return client.chat.completions.create(
            model="policy", messages=messages, tools=list(self.tools)
        )


TRIAGE = Agent("Pass the caller on. You have no calculator.", (TRANSFER,))
CALCULATOR = Agent(Calculator.system, tuple(Calculator().template["tools"]))


def solve(seed: int, base_url: str, api_key: str, reward) -> dict:
    """Let the agents finish the calculation of a seed; the right answer is a success."""
    client, task = OpenAI(base_url=base_url, api_key=api_key), Calculator()
    question, _ = task.reset(seed=seed)
    conversation = [{"role": "user", "content": question}, *done_before(task)]
    passed_on = TRIAGE.ask(client, conversation)
    for call in passed_on.choices[0].message.tool_calls or []:
        {"transfer_to_calculator": None}[call.function.name]  # KeyError: it has no such tool
    answer = finish(client, conversation, task)
    right = task.reward(answer)
    reward(0.5 * right, turn=passed_on.id)
    return {"reward": 0.5 * right, "success": right == 1}


def done_before(task: Calculator) -> list[dict]:
    """Return the messages of all steps but the last, as they were with another calculator."""
    messages, value = [], task.start
    for k, (operation, number) in enumerate(task.chain[:-1], 1):
        arguments = json.dumps({"a": value, "operation": operation, "b": number})
        call = {"name": "calculate", "arguments": arguments}
        calls = [{"id": f"before{k}", "type": "function", "function": call}]
        text, value = f"Step {k} is to {operation}.", compute(value, operation, number)
        messages.append({"role": "assistant", "content": text, "tool_calls": calls})
        result = json.dumps({"result": value})
        messages.append({"role": "tool", "tool_call_id": f"before{k}", "content": result})
    return messages


def finish(client: OpenAI, conversation: list, task: Calculator) -> str:
    """Return the answer of the agent with the calculator; "" if it is still at work at the end."""
    for _ in range(TURNS):
        reply = CALCULATOR.ask(client, conversation).choices[0].message
        if not reply.tool_calls:
            return reply.content
        conversation.append(reply)
        for call in reply.tool_calls:
            try:
                result = json.dumps(task.calculate(**json.loads(call.function.arguments)))
            except (ValueError, KeyError, TypeError) as error:  # the agent reads what was wrong
                result = f"Error: {error}"
            message = {"role": "tool", "tool_call_id": call.id, "content": result}
            conversation.append(message)
    return ""
