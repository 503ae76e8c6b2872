"""Plays episodes for TRL's `rollout_func` with our environments, memories and prompts.

TRL takes an episode for one sequence, which must not change but at its end, and a batch has a fixed
number of rows. The prompt of a window over past turns is written anew in each turn, so here a row
is a single turn, as it is a sample for main.py. Groups of whole episodes are played until there are
enough turns for a batch, and those that are too many are left out at random. Each turn brings the
advantage of its episode within its group, which TRL takes as the reward of the row.
"""

import math
import random
import statistics

from envs import make_env
from envs.text_env import act, begin
from memory import make
from memory.render import Renderer

EPS = 1e-4  # beside the standard deviation, as in TRL


class Episode:
    """One episode in progress. turns: (prompt ids, response ids) of each turn"""

    def __init__(self, flags, seed: int):
        self.env = make_env(flags.env_name)
        self.memory = make(flags.memory, flags.memory_length)
        self.memory.reset(begin(self.env, seed))
        self.turns, self.ret, self.over, self.success = [], 0.0, False, False

    @property
    def before(self) -> list[int]:
        """Ids of the last prompt and its response."""
        return sum(self.turns[-1], []) if self.turns else []

    def take(self, prompt: list[int], response: list[int], text: str) -> None:
        step = act(self.env, text)
        self.memory.update(step)
        self.turns.append((prompt, response))
        self.ret += step.reward
        self.over, self.success = step.terminated or step.truncated, step.success
        if self.over:
            self.env.close()


class TurnRollouts:
    """Called with TRL's prompts, which say nothing, and its trainer; returns a batch.

    flags: of main.py; seeds: `draw(k)` is the seed of the k-th group
    rows: turns of a batch; group: episodes of a group; record: gets each played episode
    """

    def __init__(self, flags, tokenizer, seeds, rows: int, group: int, record):
        self.flags, self.tokenizer, self.seeds, self.record = flags, tokenizer, seeds, record
        self.rows, self.group, self.groups = rows, group, 0
        self.length = 2.0 * rows / group  # mean turns of an episode, for how many to begin
        self.render = Renderer(tokenizer, flags.prompt_limit)
        self.random = random.Random(self.seeds.draw(0))

    def __call__(self, prompts: list, trainer) -> dict:
        """Return prompt ids, completion ids and the advantage of each of `rows` turns."""

        def answer(ids):
            return trainer._generate_single_turn(ids, None, {}, 1)[0]

        groups, turns = [], 0
        while turns < self.rows:
            more = math.ceil((self.rows - turns) / (self.group * self.length))
            new = self.play(max(1, more), answer)
            groups += new
            turns += sum(len(episode.turns) for group in new for episode in group)
        episodes = [episode for group in groups for episode in group]
        self.length = turns / len(episodes)
        self.record.played([episode.success for episode in episodes], turns)
        chosen = self.random.sample([row for group in groups for row in rows_of(group)], self.rows)
        names = ("prompt_ids", "completion_ids", "advantage")
        columns = {name: [row[k] for row in chosen] for k, name in enumerate(names)}
        return columns | {"logprobs": None}  # TRL wants those of vLLM alone

    def play(self, count: int, answer) -> list[list[Episode]]:
        """Play some groups to their ends, all episodes side by side."""
        numbers = range(self.groups + 1, self.groups + count + 1)
        self.groups += count
        groups = [[Episode(self.flags, self.seeds.draw(k)) for _ in range(self.group)]
                  for k in numbers]  # fmt: skip
        while going := [e for group in groups for e in group if not e.over]:
            asked = [self.render(e.memory.messages(), e.before).ids for e in going]
            for episode, prompt, response in zip(going, asked, answer(asked), strict=True):
                episode.take(prompt, response, self.text(response))
        return groups

    def text(self, ids: list[int]) -> str:
        said = ids[:-1] if ids[-1] == self.tokenizer.eos_token_id else ids
        return self.tokenizer.decode(said)


def rows_of(group: list[Episode]) -> list[tuple]:
    """Prompt, response and advantage of each turn.

    A_e = (R_e - mean of the group's R) / (their standard deviation + eps)
    """
    returns = [episode.ret for episode in group]
    mean, scale = statistics.fmean(returns), statistics.stdev(returns) + EPS
    return [
        (prompt, response, (episode.ret - mean) / scale)
        for episode in group
        for prompt, response in episode.turns
    ]
