"""Batch: the collected turns as tensors, from response ids to advantages.

Tensors are (E, N, T): turns, environments, response tokens, where T is the longest response. Turn t
of environment n is row t * N + n where turns are flat. If environments have different numbers of
turns (whole episodes), E is the largest; the turns that others lack are None in lists, masked in
tensors, and not in `rows`. An update needs, in this order:

    score            log pi_old, log pi_0 and V of every response token
    penalise_kl      the KL penalty becomes part of the rewards
    compute_returns  advantages and returns
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

import torch
from torch import Tensor

from common.ranks import ALONE, Ranks
from storage.minibatch import MicroBatch, Sample, micro_batches, one_per_turn

MISSING = (None, None)  # response and step of a turn that an environment does not have


def trained_scores(batch: "Batch", actor_critic, micro_batch: MicroBatch):
    """Return the trained model's Scores of the sampled tokens, which define pi_old.

    The engine's log-probs would not do: its kernels round differently, so ratios would not begin
    at 1. In bf16 the same holds if scoring and update use different micro-batches.
    """
    return actor_critic(micro_batch)


@dataclass(frozen=True)
class Scoring:
    """How batches are scored.

    token_budget: padded tokens of one forward pass
    ranks: each computes its share of the rows and gets all results
    layout: makes the rows of the model, from the samples and N
    old_scores: where log pi_old and V come from, as `trained_scores`
    """

    token_budget: int = 10**6
    ranks: Ranks = ALONE
    layout: Callable = one_per_turn
    old_scores: Callable = trained_scores


class Batch:
    """The turns of all N environments.

    turns: for each environment, the pairs (Response, Step) that it has completed
    next_prompts: s_{E+1} of each environment
    final_prompts: (t, n) -> the prompt after a turn that a time limit or a fault cut off
    episodes: the record to which these turns are added
    """

    COMPUTED = ("logps", "ref_logps", "values")  # by `score`, from the model and the reference

    def __init__(
        self, turns: list[list], next_prompts: list, final_prompts: dict, scoring: Scoring, episodes
    ):
        self.scoring, self.device, self.episodes = scoring, scoring.ranks.device, episodes
        self.next_prompts, self.final_prompts = next_prompts, final_prompts
        by_turn = list(zip_longest(*turns, fillvalue=MISSING))  # whole episodes differ in length
        self.responses = [[response for response, _ in row] for row in by_turn]  # E lists of N
        self.steps = [[step for _, step in row] for row in by_turn]
        self.e_len, self.n_env = len(by_turn), len(turns)
        flat = enumerate(chain(*by_turn))
        self.played = {row: turn for row, turn in flat if turn is not MISSING}
        self.rows = list(self.played)  # turns to train on
        self.samples = [
            Sample(r.prompt.ids, r.ids, r.temperature) if r else Sample((), ())
            for r in chain(*self.responses)
        ]
        self.layout = scoring.layout(self.samples, self.n_env)  # which turns share a model row
        self._pad()

    def _pad(self) -> None:
        """Make the (E, N, T) tensors and put each turn's reward on its last response token."""
        E, N = self.e_len, self.n_env
        lengths = [len(sample.response) for sample in self.samples]
        lengths = torch.tensor(lengths, device=self.device).view(E, N, 1)
        T = int(lengths.max())  # prompts are not in these tensors: they are state, never decisions
        self.response_mask = torch.arange(T, device=self.device) < lengths  # (E, N, T)
        zeros = torch.zeros(E, N, T, device=self.device)
        self.logps, self.ref_logps = zeros, zeros.clone()
        self.values, self.rewards = zeros.clone(), zeros.clone()
        rewards = [[step.reward if step else 0.0 for step in row] for row in self.steps]
        rewards = torch.tensor(rewards, device=self.device).unsqueeze(-1)
        # clamp: a missing turn has no last token; its reward of 0 lands where the mask is False
        self.rewards.scatter_(-1, (lengths - 1).clamp(min=0), rewards)
        # A missing turn stands behind the end of an episode, so nothing flows back through it.
        ends = [[step.done if step else True for step in row] for row in self.steps]
        self.episode_ends = torch.tensor(ends)  # (E, N)

    # ---- the sampled tokens, (R,), of a micro-batch -------------------------------------------

    def micro_batches(self, rows: Sequence[int]) -> Iterator[MicroBatch]:
        """Yield this rank's micro-batches of the turns `rows`."""
        together, budget = self.layout.together(rows), self.scoring.token_budget
        return micro_batches(self.samples, together, budget, self.device, self.scoring.ranks)

    def masks(self, rows: Sequence[int] | Tensor) -> Tensor:
        """Return the response masks of some turns, (turns, T)."""
        return self.response_mask.flatten(0, 1)[rows]

    def put(self, tensor: Tensor, rows: Tensor, flat: Tensor) -> None:
        """Write the flat results (R,) of the turns `rows` into a tensor (E, N, T)."""
        mask = self.masks(rows)
        block = torch.zeros(mask.shape, dtype=tensor.dtype, device=tensor.device)
        block[mask] = flat.to(tensor.dtype)  # the mask runs turn by turn, as the flat results do
        tensor.flatten(0, 1)[rows] = block  # flatten returns a view: this writes into `tensor`

    def take(self, tensor: Tensor, rows: Tensor) -> Tensor:
        """Read what `put` writes, flat (R,)."""
        return tensor.flatten(0, 1)[rows][self.masks(rows)]

    # ---- scores ---------------------------------------------------------------------------------

    @torch.no_grad()
    def score(self, actor_critic, reference, minibatches: list[list[int]]) -> None:
        """Compute log pi_old, log pi_0 and V of every response token.

        minibatches: rows of each, as the first epoch of the update takes them, so that both see
            the same micro-batches and the first ratios are exactly 1
        """
        computed = [getattr(self, name) for name in self.COMPUTED]
        for tensor in computed:
            tensor.zero_()  # rows that other ranks compute must be 0 when ranks are summed
        for micro in chain.from_iterable(map(self.micro_batches, minibatches)):
            scores = self.scoring.old_scores(self, actor_critic, micro)
            found = (scores.logps, reference(micro), scores.values)
            for tensor, flat in zip(computed, found, strict=False):
                self.put(tensor, micro.rows, flat)
        for tensor in computed:
            self.scoring.ranks.sum(tensor)  # one rank has computed each row, others hold zeros
        self._score_ends(actor_critic)

    @torch.no_grad()
    def score_values(self, actor_critic) -> None:
        """Compute V alone, for the critic's warm-up: the actor stands still, so the KL is 0."""
        self.values.zero_()  # as in `score`
        for micro in self.micro_batches(self.rows):
            self.put(self.values, micro.rows, actor_critic.values(micro))
        self.scoring.ranks.sum(self.values)
        self._score_ends(actor_critic)

    def _score_ends(self, actor_critic) -> None:
        """Compute V(s_{E+1}), (N,), and V of the final observations of episodes cut off."""
        cut = sorted(self.final_prompts)  # sorted: all ranks deal alike
        prompts = self.next_prompts + [self.final_prompts[at] for at in cut]
        values = values_of(prompts, actor_critic, self.scoring)
        self.bootstrap = values[: self.n_env]  # (N,)
        self.final_values = dict(zip(cut, values[self.n_env :].tolist(), strict=True))

    # ---- rewards and returns --------------------------------------------------------------------

    def mean_kl(self) -> float:
        """Return the mean KL to the reference per response token, by the k1 estimate."""
        return (self.logps - self.ref_logps)[self.response_mask].mean().item()

    def penalise_kl(self, kl) -> None:
        """Subtract beta times the KL estimate from each response token's reward (paper, 3.1)."""
        if kl.reward_coef > 0:  # else there may be no reference, and log pi_0 is unknown
            # Per token, so that each is charged for its own divergence (k1: unbiased).
            estimate = kl.estimate(self.logps, self.ref_logps)
            self.rewards -= kl.reward_coef * torch.where(self.response_mask, estimate, 0.0)

    def compute_returns(self, estimator: Callable) -> None:
        """Fill `advantages` and `returns`, (E, N, T), by what `make_estimator` returns."""
        self.advantages, self.returns = estimator(
            rewards=self.rewards,
            values=self.values,
            response_mask=self.response_mask,
            next_values=self.next_values(),
            episode_ends=self.episode_ends.to(self.device),
            steps=self.steps,
        )

    def next_values(self) -> Tensor:
        """Return V of the state after each turn, (E, N).

        It is the next turn's first value, or the bootstrap value where the batch ends. An ended
        episode is worth 0, or V of its final observation if it was cut off.
        """
        next_values = torch.cat([self.values[1:, :, 0].cpu(), self.bootstrap.unsqueeze(0)])
        next_values[self.episode_ends] = 0.0  # the paper's binary reward: a time limit is a failure
        for (t, n), value in self.final_values.items():
            next_values[t, n] = value
        return next_values.to(self.device)


def values_of(prompts: list, actor_critic, scoring: Scoring) -> Tensor:
    """Return V of prompts, (P,) on the CPU.

    A prompt's value stands before the first token of a response, so each prompt gets a response of
    one token. Which token does not matter: attention is causal.
    """
    samples = [Sample(prompt.ids, [0]) for prompt in prompts]  # 0: any token would do
    rows, values = [[row] for row in range(len(samples))], torch.zeros(len(samples))
    budget, device, ranks = scoring.token_budget, scoring.ranks.device, scoring.ranks
    for micro in micro_batches(samples, rows, budget, device, ranks):
        values[micro.rows] = actor_critic.values(micro).float().cpu()
    ranks.sum(values)  # each rank has computed its share of the prompts
    return values
