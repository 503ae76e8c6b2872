"""The page of `turnwise critic`: how well V and its substitutes know what a state earns.

The truth about a state is the mean return of M continuations. Its own noise is known from their
spread, and is taken out of every figure: with s^2 the variance of a state's returns, s^2 / M is
the noise of its mean, and the mean of s^2 / M over states is subtracted where a variance or a
covariance contains it.
"""

from dataclasses import dataclass

import numpy as np

from reports.evaluations import markdown_table

DRAWS = 1000  # of the bootstrap over episodes
PICTURE = "critic.png"
ROUNDING = 1e-12  # of squared returns
FEW = 10  # episodes, below which there are no intervals
ABOUT = """\
Of {episodes} evaluation episodes, up to {states} states each were reached again by replay, and from
each the policy played on {continuations} times. The mean discounted return of these continuations
(gamma {gamma:g} a turn, the environment's reward alone) is the truth about the state. Its noise is
taken out of the figures.

*Explained variance* is 1 - Var(truth - expected) / Var(truth): 1 is perfect, 0 no better than one
number for all states. In brackets: 95 % bootstrap intervals over episodes. *Bias* is the mean of
expected - truth. Beside the critic stand what methods without one expect: the mean return of other
episodes from the same turn on; the mean return of {continuations} other episodes of the same seed
(GRPO); and of turns of these that show the same observation, or GRPO's if there are none (GiGPO).
"""


@dataclass
class State:
    """A turn of an episode before which the policy played on.

    turn: from 0; length: turns of the episode
    returns: discounted ones of the continuations; expected: method -> what it expects of the state
    """

    seed: int
    turn: int
    length: int
    returns: list[float]
    expected: dict[str, float]


@dataclass
class Figures:
    """Of one method. None: the states do not differ beyond the noise of their truth."""

    correlation: float | None
    explained: float | None
    bias: float


def figures(states: list[State], method: str) -> Figures:
    """Compare what a method expects of states with what they earn."""
    return _figures(*_arrays(states, method))


def _arrays(states: list[State], method: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what is expected, the truth and the variance of its noise, (S,) each."""
    returns = [np.array(state.returns) for state in states]
    truth = np.array([each.mean() for each in returns])
    noise = np.array([each.var(ddof=1) / len(each) for each in returns])
    return np.array([state.expected[method] for state in states]), truth, noise


def _figures(expected: np.ndarray, truth: np.ndarray, noise: np.ndarray) -> Figures:
    bias = float((expected - truth).mean())
    differ = truth.var() - noise.mean()
    if differ <= ROUNDING * np.square(truth).mean():
        return Figures(None, None, bias)
    explained = 1 - ((truth - expected).var() - noise.mean()) / differ
    spread = expected.std() * np.sqrt(differ)
    shared = ((expected - expected.mean()) * (truth - truth.mean())).mean()
    return Figures(float(shared / spread) if spread else None, float(explained), bias)


def interval(states: list[State], method: str) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval of the explained variance, over episodes.

    None: there are too few episodes, or states that differ too little
    """
    seeds = np.array([state.seed for state in states])
    episodes = [np.flatnonzero(seeds == seed) for seed in np.unique(seeds)]
    if len(episodes) < FEW:
        return None
    arrays, rng = _arrays(states, method), np.random.default_rng(0)
    drawn = []
    for _ in range(DRAWS):
        rows = np.concatenate(
            [episodes[k] for k in rng.integers(len(episodes), size=len(episodes))]
        )
        drawn.append(_figures(*(array[rows] for array in arrays)).explained)
    known = [each for each in drawn if each is not None]
    return tuple(np.quantile(known, [0.025, 0.975]).tolist()) if len(known) == DRAWS else None


def points(states: list[State]) -> list[tuple[float, float]]:
    """Return (truth, V) of each state."""
    expected, truth, _ = _arrays(states, "critic")
    return list(zip(truth.tolist(), expected.tolist(), strict=True))


def critic_page(name: str, options, gamma: float, found: dict[int, list[State]]) -> str:
    """Return Markdown. name: of the run; found: number of updates -> states"""
    about = ABOUT.format(gamma=gamma, **vars(options))
    parts = [f"# What the critic of {name} knows", about, f"![V over the truth]({PICTURE})"]
    for update, states in found.items():
        parts += [f"## After {update} updates", by_method(states), by_position(states)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def by_method(states: list[State]) -> str:
    rows = [["", "explained variance", "correlation", "bias"]]
    for method in states[0].expected:
        these, ends = figures(states, method), interval(states, method)
        explained = shown(these.explained) + (f" [{ends[0]:.2f}, {ends[1]:.2f}]" if ends else "")
        rows.append([method, explained, shown(these.correlation), f"{these.bias:+.3f}"])
    return markdown_table(rows)


def by_position(states: list[State]) -> str:
    """Return a table over quarters of the episode."""
    rows = [["place in the episode", "states", "mean truth", "critic: explained", "bias"]]
    for quarter, name in enumerate(["first quarter", "second", "third", "last"]):
        there = [state for state in states if 4 * state.turn // state.length == quarter]
        if there:
            these = figures(there, "critic")
            truth = np.mean([np.mean(state.returns) for state in there])
            explained, bias = shown(these.explained), f"{these.bias:+.3f}"
            rows.append([name, str(len(there)), f"{truth:.3f}", explained, bias])
    return markdown_table(rows)


def shown(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.2f}"
