"""The dialogue log: what a turn brought is written down, and read again by the viewer."""

from conftest import make_collection, make_prompt
from made_turns import answer, play, scored

from envs.text_env import Observation
from run.dialogue_log import read_log
from run.turns import write_turns

CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": "ü"}}}
REPLY = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "3"}


class Decoder:
    def decode(self, ids):
        return " ".join(map(str, ids))


def test_a_turn_holds_its_new_messages(tmp_path):
    rollouts = make_collection(1, 3)
    seen = Observation("3", "3", "", "", messages=(RESULT,))
    play(rollouts, 0, answer([1], [5]), reply=REPLY, observation=seen)
    # a fault: its Step repeats what was observed before the turn, which followed an earlier one
    play(rollouts, 1, answer([1], [5]), fault="boom", truncated=True, observation=seen)
    play(rollouts, 2, answer([1], [5]), observation=Observation("a wall", "", "", ""))
    for n in range(3):
        rollouts.finish(n, make_prompt([2]))
    batch = scored(rollouts)
    batch.advantages = batch.values
    write_turns(tmp_path, 1, batch, Decoder(), 3)
    called, failed, plain = read_log(tmp_path)
    assert (called["reply"], called["followed"]) == (REPLY, [RESULT])
    assert (failed["reply"], failed["followed"]) == (None, [])
    assert (plain["reply"], plain["followed"]) == (None, [])
