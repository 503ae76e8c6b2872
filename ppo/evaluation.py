"""The evaluation panel: a fixed set of seeded episodes, the same for every run.

`Panel` takes the place of the RolloutStorage in `collect`. It keeps how episodes ended and, for a
`Transcript` of reports/zero_shot.py, what the model said. Whichever environment is free plays
the next episode, and no figure depends on which one it was.
"""

import math

from common.ranks import ALONE, Ranks
from storage.compact import compact, whole
from storage.episodes import Episodes


class Panel:
    """Collects episodes until none is left to begin.

    n_env: environments of all ranks together; episodes: how many they play, for `progress`
    """

    def __init__(self, n_env: int, ranks: Ranks = ALONE, transcript=None, episodes: int = 0):
        self.n_env, self.ranks, self.share = n_env, ranks, ranks.share(n_env)
        N, self.episodes = len(self.share), len(ranks.share(episodes))
        self.over = [False] * N  # whether the environment has no episode left to begin
        self.done, self.responses = [False] * N, [None] * N
        self.record, self.valid = Episodes(N, window=None), []
        self.transcript, self.turns = transcript, []

    @property
    def full(self) -> bool:
        return all(self.done)

    def progress(self) -> float:
        """Return the share of this rank's episodes that have ended."""
        return len(self.record.finished) / max(1, self.episodes)

    def wants(self, n: int) -> bool:
        return not self.over[n]

    def due(self, n: int) -> list[int]:
        return [n]

    def member(self, n: int) -> int:
        return 0

    def act(self, n: int, response) -> None:
        self.responses[n] = response
        self.record.before[n] = whole(response)

    def before(self, n: int) -> list[int]:
        return self.record.before[n]

    def insert(self, n: int, step) -> None:
        self.record.insert(n, step)
        self.valid.append(step.valid)
        if self.transcript is not None and self.responses[n]:  # else no turn came to be
            self.turns.append((self.share.start + n, compact(self.responses[n]), step))
        self.responses[n] = None
        self.over[n] = step.done and step.first is None

    def cuts(self, step) -> bool:
        """Nothing is bootstrapped in an evaluation."""
        return False

    def finish(self, n: int, prompt) -> None:
        self.done[n] = True

    def join(self) -> None:
        """Bring the episodes of all ranks together."""
        # A sum of floats depends on its order, so it must not matter who played which episode.
        played = sorted(self.ranks.gather([*self.record.finished]), key=lambda e: (e.ret, e.length))
        self.record.finished.clear()
        self.record.finished.extend(played)
        self.valid = self.ranks.gather(self.valid)
        self.turns = sorted(self.ranks.gather(self.turns), key=lambda t: (t[2].seed, t[2].number))
        for n, response, step in self.turns:
            self.transcript.add(n, response, step)

    def summary(self) -> dict[str, float]:
        """eval/*: success with its Wilson interval, return with its standard error, and more."""
        episodes, means = self.record.finished, self.record.means()
        count = len(episodes)
        low, high = wilson_interval(sum(episode.success for episode in episodes), count)
        variance = sum((e.ret - means["return"]) ** 2 for e in episodes) / max(1, count - 1)
        return {f"eval/{name}": mean for name, mean in means.items()} | {
            "eval/success_low": low,
            "eval/success_high": high,
            "eval/return_stderr": math.sqrt(variance / count),
            "eval/valid_action": sum(self.valid) / len(self.valid),
            "eval/episodes": count,
        }


def wilson_interval(wins: int, count: int, z: float = 1.959964) -> tuple[float, float]:
    """Return the 95 % score interval of a share of `count` > 0 trials (Wilson 1927)."""
    share = wins / count
    centre = share + z * z / (2 * count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)
