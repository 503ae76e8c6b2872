"""The episodes under way and the finished ones. One may span batches, the warm-up's too."""

from collections import deque
from dataclasses import asdict, dataclass, field
from statistics import fmean


@dataclass
class Episode:
    env: int
    ret: float = 0.0  # undiscounted sum of rewards, penalties included
    length: int = 0  # turns
    success: bool = False
    metrics: dict = field(default_factory=dict)
    episode: int | None = None  # its number in the environment, as in `Step.episode`


class Episodes:
    """The episodes of n_env environments; keeps the last `window` finished ones (None: all).

    turns: how many turns the policy was trained on
    previous_ids: ids of each environment's last prompt and response, which the next prompt may
        continue
    """

    def __init__(self, n_env: int, window: int | None = 100):
        self.running = [Episode(n) for n in range(n_env)]
        self.finished: deque[Episode] = deque(maxlen=window)
        self.turns = 0
        self.previous_ids: list[list[int]] = [[]] * n_env

    def insert(self, n: int, step) -> None:
        """Add a step of environment n. The last step of an episode finishes it."""
        if self.running[n].episode not in (None, step.episode):
            self.running[n] = Episode(n)  # a resumed run left one that cannot be played again
        episode = self.running[n]
        episode.episode = step.episode
        episode.ret += step.reward
        episode.length += 1
        if step.done:
            episode.success, episode.metrics = step.success, step.metrics
            self.finished.append(episode)
            self.running[n] = Episode(n)

    def means(self, fewest: int = 1) -> dict[str, float | None]:
        """Return means over finished episodes, of the environment's own figures over those that
        have them. They are None while fewer than `fewest` have finished."""
        done = self.finished
        figures = {"success": [e.success for e in done], "return": [e.ret for e in done]}
        figures["episode_len"] = [e.length for e in done]
        for name in sorted({name for e in done for name in e.metrics}):
            figures[name] = [e.metrics[name] for e in done if name in e.metrics]
        return {k: fmean(v) if len(done) >= fewest else None for k, v in figures.items()}

    def state_dict(self) -> dict:
        episodes = {"running": self.running, "finished": self.finished}
        kept = {"turns": self.turns, "previous_ids": list(self.previous_ids)}
        return {k: [asdict(e) for e in v] for k, v in episodes.items()} | kept

    def load_state_dict(self, state: dict) -> None:
        self.turns, self.previous_ids = state["turns"], state["previous_ids"]
        self.running = [Episode(**episode) for episode in state["running"]]
        self.finished = deque((Episode(**e) for e in state["finished"]), self.finished.maxlen)
