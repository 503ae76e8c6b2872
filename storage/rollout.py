"""RolloutStorage: exactly E turns of each of N environments, from prompt ids to advantages.

Collection fills ragged lists (`act`, `insert`, `limit`, `finish`), and `join` brings the lists of
all ranks together. `score` pads once, into (E, N, T) tensors over response tokens, where T is the
longest response. Where turns are flat, turn t of environment n is row t * N + n. The metrics of a
batch are in `ppo.run.figures`.
"""

from collections.abc import Callable, Sequence
from copy import copy
from itertools import chain

import torch
from torch import Tensor

from storage.episodes import Episodes
from storage.minibatch import micro_batches
from storage.ranks import ALONE, Ranks


def make_storage(args, ranks: Ranks) -> "RolloutStorage":
    options = dict(proper_limits=args.use_proper_time_limits, trusted=args.tis_cap is not None)
    return RolloutStorage(args.e_len, args.n_env, args.token_budget, ranks, **options)


class RolloutStorage:
    """Turns of all N environments. This rank collects its share of them, numbered from 0.

    e_len: E, turns of each environment; n_env: N, environments of all ranks together
    token_budget: padded tokens of one forward pass; episodes: `Episodes` that outlive the batch
    proper_limits: at a time limit bootstrap from V, instead of 0 as at a failure
    trusted: take the engine's log-probs as log pi_old, without the actor's pass (--tis-cap)
    """

    def __init__(self, e_len: int, n_env: int, token_budget: int, ranks: Ranks = ALONE,
                 proper_limits: bool = False, trusted: bool = False, episodes=None):  # fmt: skip
        self.e_len, self.n_env, self.token_budget = e_len, n_env, token_budget
        self.ranks, self.device = ranks, ranks.device
        self.proper_limits, self.trusted = proper_limits, trusted
        self.episodes = episodes or Episodes(n_env)
        self.after_update()

    def after_update(self) -> None:
        """Forget the batch. Environments and memories go on from where they are."""
        E, N = self.e_len, len(self.ranks.share(self.n_env))
        self.responses = [[None] * N for _ in range(E)]  # from the engine, with their prompts
        self.steps = [[None] * N for _ in range(E)]  # from the environments
        self.turns = [0] * N  # turns that each environment has completed
        self.next_prompts = [None] * N  # s_{E+1} of each environment: its value is the bootstrap
        self.limit_prompts = {}  # (t, n) -> the prompt at the final observation of a time limit
        self.values = self.prompt_ids = self.response_ids = self.first_epoch = None

    def longer(self, times: int) -> "RolloutStorage":
        """Return an empty storage for `times` batches at once, with the same record of episodes."""
        storage = copy(self)
        storage.e_len = times * self.e_len
        storage.after_update()
        return storage

    @property
    def rows(self) -> range:
        return range(self.e_len * self.n_env)

    @property
    def full(self) -> bool:
        return all(prompt is not None for prompt in self.next_prompts)

    def wants(self, n: int) -> bool:
        """Whether environment n still has turns to take in this batch."""
        return self.turns[n] < self.e_len

    def act(self, n: int, response) -> None:
        """Keep the response that environment n is about to act on."""
        self.responses[self.turns[n]][n] = response

    def insert(self, n: int, step) -> None:
        """Keep what environment n answered, which completes its turn."""
        assert self.wants(n), f"environment {n} already has its {self.e_len} turns"
        self.steps[self.turns[n]][n] = step
        self.turns[n] += 1

    def cuts(self, step) -> bool:
        """Whether `step` ended its episode without an outcome, so that V has to stand for one."""
        # A failed environment is a cut in any case: the policy had no part in it.
        allowed = self.proper_limits or bool(step.fault)
        return allowed and step.truncated and not step.terminated

    def limit(self, n: int, prompt) -> None:
        """Keep what the agent would have seen after the turn just inserted, which was cut."""
        self.limit_prompts[self.turns[n] - 1, n] = prompt

    def finish(self, n: int, prompt) -> None:
        """Keep the prompt that follows the last turn of environment n."""
        self.next_prompts[n] = prompt

    def join(self) -> None:
        """Bring the turns of all ranks together, so that each rank holds the whole batch."""
        complete = all(t == self.e_len for t in self.turns)
        assert complete, f"turns per environment {self.turns}, not {self.e_len}"
        first = self.ranks.share(self.n_env)[0]  # global index of this rank's environment 0
        limits = [((t, first + n), prompt) for (t, n), prompt in self.limit_prompts.items()]
        self.limit_prompts = dict(self.ranks.gather(limits))
        # Transposed, because ranks hold different environments of the same turns.
        self.responses = transposed(self.ranks.gather(transposed(self.responses)))
        self.steps = transposed(self.ranks.gather(transposed(self.steps)))
        self.next_prompts = self.ranks.gather(self.next_prompts)
        # Episodes are recorded in the order of turns: no figure depends on who answered first.
        for turn in self.steps:
            for n, step in enumerate(turn):
                self.episodes.insert(n, step)

    @torch.no_grad()
    def score(self, actor_critic, reference, first_epoch: list[list[int]]) -> None:
        """Compute log pi_old, log pi_0 and V of every response token with the trained model.

        The engine's log-probs come from other kernels: with them no ratio would begin at 1. Nor
        would they all, in bf16, if the update cut other micro-batches: these would round otherwise.
        first_epoch: the minibatches that the update begins with
        """
        self._pad()
        self.first_epoch = first_epoch
        for batch, mask in chain.from_iterable(map(self.batches, first_epoch)):
            if self.trusted:
                values = actor_critic.values(batch.ids, batch.response_mask)
            else:
                scores = actor_critic(batch.ids, batch.response_mask, batch.temperature)
                values = scores.values
                self.fill(self.logps, batch.rows, mask, scores.logps)
            self.fill(self.values, batch.rows, mask, values)
            ref_logps = reference(batch.ids, batch.response_mask, batch.temperature)
            self.fill(self.ref_logps, batch.rows, mask, ref_logps)
        for computed in (self.logps, self.values, self.ref_logps):
            self.ranks.sum(computed)  # one rank has computed each row, the others hold zeros
        if self.trusted:
            self.logps = self.engine_logps()
        self._score_ends(actor_critic)

    @torch.no_grad()
    def score_values(self, actor_critic) -> None:
        """Compute V alone, for the critic's warm-up: while the actor stands still, the KL is 0."""
        if self.values is None:  # the first round on this batch
            self._pad()
        self.values.zero_()  # rows that other ranks compute must be zeros when summed
        for batch, mask in self.batches(self.rows):
            values = actor_critic.values(batch.ids, batch.response_mask)
            self.fill(self.values, batch.rows, mask, values)
        self.ranks.sum(self.values)
        self._score_ends(actor_critic)

    def batches(self, rows: Sequence[int]):
        """Yield this rank's micro-batches of `rows`, each with its mask (B, T)."""
        prompts, responses, budget = self.prompt_ids, self.response_ids, self.token_budget
        for batch in micro_batches(prompts, responses, rows, budget, self.device, self.ranks):
            mask = self.response_mask.flatten(0, 1)[batch.rows]
            if self.temperatures is not None:
                each = self.temperatures[batch.rows]
                batch.temperature = each.repeat_interleave(mask.sum(-1).cpu()).to(self.device)
            yield batch, mask

    @staticmethod
    def fill(tensor: Tensor, rows: Tensor, mask: Tensor, flat: Tensor) -> None:
        """Write the flat results (R,) of `rows` into (E, N, T), where mask (B, T) is True."""
        block = torch.zeros(mask.shape, dtype=tensor.dtype, device=tensor.device)
        block[mask] = flat.to(tensor.dtype)
        tensor.flatten(0, 1)[rows] = block  # flatten returns a view: this writes into `tensor`

    @staticmethod
    def take(tensor: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
        """Read what `fill` writes: flat (R,), the entries of `rows` where mask (B, T) is True."""
        return tensor.flatten(0, 1)[rows][mask]

    def engine_logps(self) -> Tensor:
        """Return the log-probs that the engine reported when it sampled the tokens, (E, N, T)."""
        reported = torch.zeros_like(self.logps)
        flat = [logp for turn in self.responses for response in turn for logp in response.logps]
        # The mask selects turn by turn, environment by environment: in the order of `flat`.
        reported[self.response_mask] = torch.tensor(flat, device=self.device)
        return reported

    def _pad(self) -> None:
        """Make the (E, N, T) tensors and put each turn's reward on its last response token."""
        flat = [response for turn in self.responses for response in turn]
        self.prompt_ids, self.response_ids = [r.prompt.ids for r in flat], [r.ids for r in flat]
        each = [response.temperature for response in flat]
        self.temperatures = None if None in each else torch.tensor(each)  # (E * N,)
        lengths = torch.tensor([len(ids) for ids in self.response_ids], device=self.device)
        lengths = lengths.view(self.e_len, -1, 1)  # (E, N, 1)
        T = int(lengths.max())
        self.response_mask = torch.arange(T, device=self.device) < lengths  # (E, N, T)
        zeros = torch.zeros(self.response_mask.shape, device=self.device)
        self.logps, self.ref_logps, self.values, self.rewards = (zeros.clone() for _ in range(4))
        rewards = torch.tensor([[step.reward for step in turn] for turn in self.steps])  # (E, N)
        self.rewards.scatter_(-1, lengths - 1, rewards.unsqueeze(-1).to(self.device))
        self.episode_ends = torch.tensor([[step.done for step in turn] for turn in self.steps])
        self.cut = torch.tensor([[self.cuts(step) for step in turn] for turn in self.steps])

    def _score_ends(self, actor_critic) -> None:
        """Compute V(s_{E+1}), (N,), and V of the final observations of time limits.

        A prompt's value stands before the first token of a response, so each prompt gets a response
        of one token. Which token does not matter: attention is causal.
        """
        limits = sorted(self.limit_prompts)
        prompts = self.next_prompts + [self.limit_prompts[at] for at in limits]
        ids = [prompt.ids for prompt in prompts]
        values = torch.zeros(len(ids))
        one, rows, budget = [[0]] * len(ids), range(len(ids)), self.token_budget
        for batch in micro_batches(ids, one, rows, budget, self.device, self.ranks):
            values[batch.rows] = actor_critic.values(batch.ids, batch.response_mask).float().cpu()
        self.ranks.sum(values)  # each rank has computed its share of the prompts
        self.bootstrap = values[: self.n_env]  # (N,)
        self.limit_values = dict(zip(limits, values[self.n_env :].tolist(), strict=True))

    def mean_kl(self) -> float:
        """Return the mean KL to the reference per response token, by the k1 estimate."""
        return (self.logps - self.ref_logps)[self.response_mask].mean().item()

    def penalise_kl(self, kl) -> None:
        """Subtract beta times the KL estimate from each response token's reward (paper, 3.1)."""
        if kl.coef > 0:  # with 0 there may be no reference, and its log-probs are unknown
            estimate = kl.estimate(self.logps, self.ref_logps)
            self.rewards -= kl.coef * torch.where(self.response_mask, estimate, 0.0)

    def compute_returns(self, estimator: Callable) -> None:
        """Fill `advantages` and `returns`, (E, N, T), by what `make_estimator` returns."""
        # V of the state after each turn: the next turn's first value, or the bootstrap at the cut.
        self.next_values = torch.cat([self.values[1:, :, 0].cpu(), self.bootstrap.unsqueeze(0)])
        self.next_values[self.episode_ends] = 0.0
        for (t, n), value in self.limit_values.items():
            self.next_values[t, n] = value
        ends, following = self.episode_ends.to(self.device), self.next_values.to(self.device)
        turns = dict(rewards=self.rewards, values=self.values, response_mask=self.response_mask)
        self.advantages, self.returns = estimator(**turns, next_values=following, episode_ends=ends)


def transposed(rows: list) -> list[list]:
    return [list(column) for column in zip(*rows, strict=True)]
