"""An episode whose history is rewritten, as one text: what stands in front of each response."""

import pytest

pytest.importorskip("openai")  # the agent's

from benchmarks.concatenated import joined_prompts, mean_text
from examples.summarising_agent import SUM_UP
from run.dialogue_log import LoggedEpisode

SYSTEM = "<|im_start|>system\nrules<|im_end|>\n"
ASSISTANT = "<|im_start|>assistant\n"
ENDS = dict(seed=1, update=1, fault="", terminated=False, truncated=True, success=False,
            reward=0.0, valid=True)  # fmt: skip


def user(text: str) -> str:
    return f"<|im_start|>user\n{text}<|im_end|>\n"


def test_what_was_replaced_stands_in_front_of_the_rest():
    first = SYSTEM + user("Guess.") + ASSISTANT
    asked = SYSTEM + user("Guess.") + f"{ASSISTANT}50<|im_end|>\n" + user(SUM_UP) + ASSISTANT
    anew = SYSTEM + user("You know this: above 50\nGuess.") + ASSISTANT
    later = anew + "60<|im_end|>\n" + user("below") + ASSISTANT
    turns = [
        ENDS | dict(step=k, prompt=prompt, response=response)
        for k, (prompt, response) in enumerate(
            [(first, "50"), (asked, "above 50<|im_end|>"), (anew, "60"), (later, "55")], start=1
        )
    ]
    joined = joined_prompts(LoggedEpisode(0, 0, turns))
    # the first two are what the program sent; the others have no second system message
    assert joined[:2] == [first, asked]
    border = asked + "above 50<|im_end|>\n"
    assert joined[2:] == [border + anew.removeprefix(SYSTEM), border + later.removeprefix(SYSTEM)]


def test_a_mean_has_its_t_interval():
    # standard error (2 / 2)^.5 = 1, one degree of freedom: 12.706
    assert mean_text((1.0, 3.0)) == "+2.000 [-10.706, +14.706]"
