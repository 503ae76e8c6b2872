"""Plays episodes for TRL's `rollout_func` with our environments, memories and prompts.

TRL expects an episode to be one sequence that only grows at its end, and a fixed number of rows per
batch. A prompt that shows the last turns is rewritten in every turn. So a row is a single turn
here, like a sample of main.py. Groups of whole episodes are played until there are enough turns for
a batch, and surplus turns are dropped at random. The advantage of an episode within its group is
computed here, and TRL gets it as the reward of each turn.
"""

import math
import random
import statistics

from envs.text_env import act, begin
from envs.variants import make_variant
from memory import make
from memory.render import Renderer

EPS = 1e-4  # added to the standard deviation, as in TRL


class Episode:
    """One episode in progress.

    turns: (prompt ids, response ids, their log-probs if vLLM sampled them) of each turn
    """

    def __init__(self, flags, seed: int):
        names = ("prompts", "on_invalid", "format_penalty", "max_episode_steps", "data")
        self.env = make_variant(flags.env_name, **{name: getattr(flags, name) for name in names})
        self.memory = make(flags.memory, flags.memory_length)
        self.memory.reset(begin(self.env, seed))
        self.turns, self.ret, self.done, self.success = [], 0.0, False, False

    @property
    def last_turn(self) -> list[int]:
        """Ids of the last prompt and its response."""
        return sum(self.turns[-1][:2], []) if self.turns else []

    def step(self, turn: tuple, text: str) -> None:
        step = act(self.env, text)
        self.memory.update(step)
        self.turns.append(turn)
        self.ret += step.reward
        self.done, self.success = step.terminated or step.truncated, step.success
        if self.done:
            self.env.close()


class TurnRollouts:
    """Called with TRL's prompts, which say nothing, and its trainer; returns a batch.

    flags: of main.py; seeds: `draw(k)` is the seed of the k-th group
    rows: turns of a batch; group: episodes of a group; record: gets each played episode
    """

    def __init__(self, flags, tokenizer, seeds, rows: int, group: int, record):
        self.flags, self.tokenizer, self.seeds, self.record = flags, tokenizer, seeds, record
        self.rows, self.group, self.groups = rows, group, 0
        self.length = 2.0 * rows / group  # estimated mean turns of an episode
        self.render = Renderer(tokenizer, flags.prompt_limit)
        self.random = random.Random(self.seeds.draw(0))

    def __call__(self, prompts: list, trainer) -> dict:
        """Return prompt ids, completion ids and the advantage of each of `rows` turns."""

        def generate(ids):
            return trainer._generate_single_turn(ids, None, {}, 1)[:2]

        groups, turns = [], 0
        while turns < self.rows:
            more = math.ceil((self.rows - turns) / (self.group * self.length))
            new = self.play(max(1, more), generate)
            groups += new
            turns += sum(len(episode.turns) for group in new for episode in group)
        episodes = [episode for group in groups for episode in group]
        self.length = turns / len(episodes)
        self.record.add([episode.success for episode in episodes], turns)
        chosen = self.random.sample([row for group in groups for row in rows_of(group)], self.rows)
        turns, advantages = zip(*chosen, strict=True)
        prompts, responses, logps = map(list, zip(*turns, strict=True))
        return {
            "prompt_ids": prompts,
            "completion_ids": responses,
            "logprobs": logps if logps[0] else None,
            "advantage": [*advantages],
        }

    def play(self, count: int, generate) -> list[list[Episode]]:
        """Play `count` groups of episodes to their ends, all at the same time."""
        numbers = range(self.groups + 1, self.groups + count + 1)
        self.groups += count
        groups = [[Episode(self.flags, self.seeds.draw(k)) for _ in range(self.group)]
                  for k in numbers]  # fmt: skip
        while running := [e for group in groups for e in group if not e.done]:
            prompts = [self.render(e.memory.messages(), e.last_turn).ids for e in running]
            responses, logps = generate(prompts)
            turns = zip(prompts, responses, logps or [None] * len(prompts), strict=True)
            for episode, turn in zip(running, turns, strict=True):
                episode.step(turn, self.text(turn[1]))
        return groups

    def text(self, ids: list[int]) -> str:
        ended = ids[-1] == self.tokenizer.eos_token_id
        return self.tokenizer.decode(ids[:-1] if ended else ids)


def rows_of(group: list[Episode]) -> list[tuple]:
    """Return each turn with its advantage.

    A_e = (R_e - mean of the group's R) / (their standard deviation + eps)
    """
    returns = [episode.ret for episode in group]
    mean, scale = statistics.fmean(returns), statistics.stdev(returns) + EPS
    return [(turn, (episode.ret - mean) / scale) for episode in group for turn in episode.turns]
