"""Running returns and lengths of episodes under way, and the results of finished ones.

An episode may span many batches, so warm-up and training share this record.
"""

from collections import deque
from dataclasses import asdict, dataclass, field


@dataclass
class Episode:
    env: int
    ret: float = 0.0  # undiscounted sum of rewards, penalties included
    length: int = 0  # turns
    success: bool = False
    metrics: dict = field(default_factory=dict)


class Episodes:
    """The episodes of n_env environments; of finished ones the last `window` (None: all)."""

    def __init__(self, n_env: int, window: int | None = 100):
        self.running = [Episode(n) for n in range(n_env)]
        self.finished: deque[Episode] = deque(maxlen=window)

    def insert(self, n: int, step) -> None:
        """Add a step of environment n; the last one finishes its episode."""
        episode = self.running[n]
        episode.ret += step.reward
        episode.length += 1
        if step.done:
            episode.success, episode.metrics = step.success, step.metrics
            self.finished.append(episode)
            self.running[n] = Episode(n)

    def means(self) -> dict[str, float | None]:
        """Return means over finished episodes: success, return, episode_len and the environment's
        own figures. They are None before the first episode has ended."""
        done = self.finished
        names = sorted({name for episode in done for name in episode.metrics})
        return {
            "success": _mean([episode.success for episode in done]),
            "return": _mean([episode.ret for episode in done]),
            "episode_len": _mean([episode.length for episode in done]),
        } | {name: _mean([episode.metrics.get(name, 0.0) for episode in done]) for name in names}

    def state_dict(self) -> dict[str, list[dict]]:
        kinds = dict(running=self.running, finished=self.finished)
        return {kind: [asdict(episode) for episode in kinds[kind]] for kind in kinds}

    def load_state_dict(self, state: dict[str, list[dict]]) -> None:
        self.running = [Episode(**episode) for episode in state["running"]]
        self.finished.clear()
        self.finished.extend(Episode(**episode) for episode in state["finished"])


def _mean(values: list) -> float | None:
    return sum(values) / len(values) if values else None
