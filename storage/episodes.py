"""The episodes under way and the finished ones. One may span batches, the warm-up's too."""

from dataclasses import asdict, dataclass, field
from statistics import fmean

WINDOW = 100  # finished episodes kept, at least: the standard error of a rate is .05 or less


@dataclass
class Episode:
    env: int
    ret: float = 0.0  # undiscounted sum of rewards, penalties included
    length: int = 0  # turns
    success: bool = False
    metrics: dict = field(default_factory=dict)
    episode: int | None = None  # its number in the environment, as in `Step.episode`


class Episodes:
    """The episodes of n_env environments.

    batches: the finished episodes of the last batches, each in their order of ending
    turns: how many turns the policy was trained on
    previous_ids: ids of each environment's last prompt and response, which the next prompt may
        continue
    """

    def __init__(self, n_env: int):
        self.running = [Episode(n) for n in range(n_env)]
        self.batches: list[list[Episode]] = [[]]  # an evaluation inserts into this one
        self.turns = 0
        self.previous_ids: list[list[int]] = [[]] * n_env

    def insert_batch(self, steps) -> None:
        """Add the pairs (n, step) of a batch. Older batches are forgotten as a whole, because the
        episodes that end last in a batch are its long ones."""
        self.batches.append([])
        for n, step in steps:
            self.insert(n, step)
        while sum(map(len, self.batches[1:])) >= WINDOW:
            del self.batches[0]

    def insert(self, n: int, step) -> None:
        """Add a step of environment n. The last step of an episode finishes it."""
        if self.running[n].episode not in (None, step.episode):
            self.running[n] = Episode(n)  # a resumed run left one that cannot be played again
        episode = self.running[n]
        episode.episode = step.episode
        episode.ret += step.reward
        episode.length += 1
        if step.done:
            episode.success, episode.metrics = step.success, step.metrics  # reported at the end
            self.batches[-1].append(episode)
            self.running[n] = Episode(n)

    @property
    def finished(self) -> list[Episode]:
        return [episode for batch in self.batches for episode in batch]

    def state_dict(self) -> dict:
        batches = [[asdict(episode) for episode in batch] for batch in self.batches]
        kept = {"turns": self.turns, "previous_ids": list(self.previous_ids)}
        return {"running": [asdict(e) for e in self.running], "batches": batches} | kept

    def load_state_dict(self, state: dict) -> None:
        self.turns, self.previous_ids = state["turns"], state["previous_ids"]
        self.running = [Episode(**episode) for episode in state["running"]]
        self.batches = [[Episode(**episode) for episode in batch] for batch in state["batches"]]


def means(episodes: list[Episode]) -> dict[str, float | None]:
    """Return means over finished episodes, of the environment's own figures over those that have
    them. They are None without an episode."""
    figures = {"success": [e.success for e in episodes], "return": [e.ret for e in episodes]}
    figures["episode_len"] = [e.length for e in episodes]
    for name in sorted({name for e in episodes for name in e.metrics}):
        figures[name] = [e.metrics[name] for e in episodes if name in e.metrics]  # absent is not 0
    return {name: fmean(found) if found else None for name, found in figures.items()}
