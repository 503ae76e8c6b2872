"""Evaluation episodes: a fixed set of seeded episodes, the same for every run.

`EvaluationEpisodes` takes the place of the training's `Collection` in `main.collect`. It keeps how
episodes ended and, for a `Transcript` of reports/zero_shot.py, the turns. Whichever environment is
free plays the next episode, and no figure depends on which one it was.
"""

import math

from common.ranks import ALONE, Ranks
from ppo.thoughts import Thoughts
from storage.batch import Scoring
from storage.collection import Collection, Turn
from storage.episodes import Episode, means
from storage.schedules import never


class UntilNoneIsLeft:
    """The schedule of an evaluation: environments go on until no episode is left to begin."""

    def wants(self, n: int, turns: list[list[Turn]]) -> bool:
        step = turns[n][-1].step if turns[n] else None
        return step is None or not step.done or step.first is not None  # None: no seed was left

    def ready_to_ask(self, n: int, turns: list[list[Turn]]) -> list[int]:
        return [n]

    def group_member(self, n: int) -> int:
        return 0


class EvaluationEpisodes(Collection):
    """Collects episodes until none is left to begin. Nothing is bootstrapped.

    n_env: environments of all ranks together
    all_seeds: the seeds of all episodes; one that could not begin counts as a failure
    transcript: gets every turn, if given; else only the last turn of an environment is kept
    """

    def __init__(
        self, n_env: int, ranks: Ranks = ALONE, transcript=None, all_seeds: range = range(0)
    ):
        schedule, scoring = UntilNoneIsLeft(), Scoring(ranks=ranks)
        super().__init__(n_env, schedule, scoring, needs_bootstrap=never)  # no update follows
        self.all_seeds, self.count = all_seeds, len(ranks.share(len(all_seeds)))
        self.outcomes: dict[int, Episode] = {}  # seed -> its episode
        self.valid: list[bool] = []
        self.transcript, self.played = transcript, []
        self.thoughts = Thoughts(all_seeds)

    def progress(self) -> float:
        """Return the share of this rank's episodes that have ended."""
        return len(self.episodes.finished) / max(1, self.count)

    def insert(self, n: int, step) -> None:
        """Keep what environment n answered."""
        self.episodes.insert(self.share[n], step)
        if step.done:  # by seed, so that two evaluations can be compared episode by episode
            self.outcomes[step.seed] = self.episodes.batches[-1][-1]
        self.valid.append(step.valid)
        turn = Turn(self.responses[n], step)
        if self.transcript is not None and turn.response:  # None: its call failed before any turn
            self.played.append((self.share[n], *turn))
        self.thoughts.insert(turn)
        self.responses[n] = None
        # The schedule needs the last turn alone; all of a long evaluation would fill the memory.
        self.turns[n] = [turn]

    def join(self) -> None:
        """Bring the episodes of all ranks together."""
        gather = self.ranks.gather
        found = dict(gather([*self.outcomes.items()]))
        lost = {seed: Episode(0) for seed in self.all_seeds if seed not in found}  # could not begin
        # In the order of the seeds, which does not depend on ranks or on who was faster.
        self.outcomes = dict(sorted((found | lost).items()))
        # A sum of floats depends on its order, so it must not matter who played which episode.
        finished = gather(self.episodes.finished) + [*lost.values()]
        self.episodes.batches = [sorted(finished, key=lambda e: (e.ret, e.length))]
        self.valid = gather(self.valid)
        self.thoughts.join(self.ranks)
        self.played = sorted(gather(self.played), key=lambda turn: (turn[2].seed, turn[2].number))
        for n, response, step in self.played:
            self.transcript.add(n, response, step)

    def summary(self) -> dict[str, float]:
        """eval/*: success with its Wilson interval, return with its standard error, and more."""
        episodes = self.episodes.finished
        count, mean = len(episodes), means(episodes)
        low, high = wilson_interval(sum(episode.success for episode in episodes), count)
        # max: of a single episode the spread is unknown, and a standard error of 0 is shown.
        variance = sum((e.ret - mean["return"]) ** 2 for e in episodes) / max(1, count - 1)
        return {f"eval/{name}": figure for name, figure in mean.items()} | {
            "eval/success_low": low,
            "eval/success_high": high,
            "eval/return_stderr": math.sqrt(variance / count),
            "eval/valid_action": sum(self.valid) / len(self.valid),
            "eval/episodes": count,
        }

    def by_episode(self) -> dict[str, list[float]]:
        """Success and return of each episode, in the order of their seeds: as in any other run."""
        episodes = self.outcomes.values()
        return {"success": [int(e.success) for e in episodes], "return": [e.ret for e in episodes]}


def wilson_interval(wins: int, count: int, z: float = 1.959964) -> tuple[float, float]:
    """Return the 95 % score interval of a share of `count` > 0 trials (Wilson 1927)."""
    # Unlike share +- 2 sqrt(share (1 - share) / count), it is right at 0 and 1, where runs end.
    share = wins / count
    centre = share + z * z / (2 * count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)
