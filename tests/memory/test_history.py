"""An invalid response from end to end: environment, pool and memory.

The default action runs, the penalty is added to the environment's reward, and later prompts show
the action that ran. The responses take the same way as in `main.collect`.
"""

import pytest

from envs.games.toy import Toy
from envs.pool.resilient import ResilientPool
from memory.variants import ActionMemory
from memory.window import WindowMemory

SYSTEM = (
    "You are shown one colour at a time. Say its name. Your actions are: pass, red, green, blue."
)
ANSWER = """What will you do next? Please respond in the following format:
    THINK: step-by-step reasoning
    ACTION: One valid action from the allowed set."""


class Shown(Toy):
    """Red, green, blue, red; every action pays `gift` on top, the default action, too."""

    gift = 0.0

    def _start(self):
        super()._start()
        self.shown = ["red", "green", "blue", "red"]
        return self._text(0)

    def _act(self, action):
        text, reward, terminated, success = super()._act(action)
        return text, reward + self.gift, terminated, success


class Generous(Shown):
    gift = 0.5


class Binary(Generous):
    binary_reward = True


def start(make, memory):
    envs = ResilientPool(make, [[2, 4]])
    memory.reset(envs.reset()[0])
    return envs


def turn(envs, memory, response):
    envs.send(0, response)
    ((_, step),) = envs.poll()
    memory.update(step)
    if step.first is not None:
        memory.reset(step.first)
    return step


def question(text):
    return {"role": "user", "content": f"Current Observation:\n{text}\n\n{ANSWER}"}


def test_an_invalid_response_written_out():
    memory = WindowMemory(2)
    envs = start(Shown, memory)
    assert memory.messages() == [
        {"role": "system", "content": SYSTEM},
        question("The colour is red."),
    ]
    step = turn(envs, memory, "THINK: it looks pink\nACTION: pink")
    # "pass" ran: it earns nothing for the colour and costs .1
    assert (step.action, step.valid, step.reward) == ("pass", False, pytest.approx(-0.1))
    assert step.response == "THINK: it looks pink\nACTION: pink"
    assert memory.messages() == [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "Observation:\nThe colour is red."},
        {"role": "assistant", "content": "THINK: it looks pink\nACTION: pass"},
        question("The colour is green."),
    ]
    step = turn(envs, memory, "THINK: it is green\nACTION: Green.")
    # one colour of four pays 1 / 4; a valid response is kept unchanged
    assert (step.action, step.valid, step.reward) == ("green", True, 0.25)
    assert memory.messages() == [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "Observation:\nThe colour is red."},
        {"role": "assistant", "content": "THINK: it looks pink\nACTION: pass"},
        {"role": "user", "content": "Observation:\nThe colour is green."},
        {"role": "assistant", "content": "THINK: it is green\nACTION: Green."},
        question("The colour is blue."),
    ]


@pytest.mark.parametrize(
    ("response", "remembered"),
    [
        # the response limit cut it before its action
        ("THINK: the colour could be", "THINK: the colour could be\nACTION: pass"),
        # the last marker counts, and the text before it stays
        ("ACTION: red\nACTION: sing", "ACTION: red\nACTION: pass"),
        ("", "ACTION: pass"),
    ],
)
def test_the_history_of_other_invalid_responses(response, remembered):
    memory = WindowMemory(1)
    envs = start(Shown, memory)
    assert not turn(envs, memory, response).valid
    assert memory.messages()[1:] == [
        {"role": "user", "content": "Observation:\nThe colour is red."},
        {"role": "assistant", "content": remembered},
        question("The colour is green."),
    ]


def test_a_memory_of_actions_holds_the_executed_one():
    memory = ActionMemory(1)
    envs = start(Shown, memory)
    turn(envs, memory, "THINK: it looks pink\nACTION: pink")
    assert memory.messages()[2] == {"role": "assistant", "content": "ACTION: pass"}


def test_the_penalty_is_added_to_the_reward_of_the_action_that_ran():
    memory = WindowMemory(0)
    envs = start(Generous, memory)
    # every action pays .5: "pass" earns .5 - .1, green .5 + .25
    assert turn(envs, memory, "nonsense").reward == pytest.approx(0.4)
    assert turn(envs, memory, "ACTION: green").reward == pytest.approx(0.75)


def test_the_penalty_comes_after_a_reward_was_made_binary():
    memory = WindowMemory(0)
    envs = start(lambda: Binary(format_penalty=0.3), memory)
    assert turn(envs, memory, "nonsense").reward == pytest.approx(1 - 0.3)
    assert turn(envs, memory, "ACTION: green").reward == 1.0


def test_a_new_episode_has_an_empty_history():
    memory = WindowMemory(4)
    envs = start(Shown, memory)
    steps = [turn(envs, memory, "ACTION: pink") for _ in range(4)]
    assert steps[-1].terminated and not steps[-1].success
    assert sum(step.reward for step in steps) == pytest.approx(-0.4)
    assert memory.messages() == [
        {"role": "system", "content": SYSTEM},
        question("The colour is red."),
    ]
